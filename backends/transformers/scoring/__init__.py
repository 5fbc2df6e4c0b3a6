"""Log-probabilities of token paths: one forward pass over a tree of tokens, or right-padded rows.

Takes a loaded model and a trie of tokens; gives log-probabilities for each path. `trials` chooses a model's route.
"""
