"""The routes to log-probabilities that servers offer, each read strictly.

Takes a request and the capabilities that the probe proved; gives a score or an upper bound per continuation.
"""
