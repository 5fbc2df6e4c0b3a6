"""The HTTP layer: address, credentials, a checked request and its retries, replicas of one model.

Takes a path and a JSON body; gives the parsed answer, or a `BackendError` with its kind. Knows nothing of scoring.
"""
