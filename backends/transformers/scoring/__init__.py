"""Log-probabilities of token paths: one forward pass over a tree of tokens, or right-padded rows.

Takes a loaded model and a trie of tokens, gives a log-probability for each path; `trials` finds a model its route.
"""
