"""Models that run on transformers and torch.

Takes a hub id or a folder, and requests. Gives log-probabilities, each distinct token of a batch read
once by attention over a tree (or by rows, where a model does not support that), and texts from rows of one cache.
"""

from backends.transformers.backend import HFBackend

__all__ = ["HFBackend"]
