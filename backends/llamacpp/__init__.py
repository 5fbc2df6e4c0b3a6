"""GGUF models that run on llama.cpp.

Takes a GGUF file and requests. Gives log-probabilities from sequences that share cells, each distinct token of a
batch read once, and texts from one sequence a slot; both through llama.cpp's low-level batch.
"""

from backends.llamacpp.backend import LlamaCppBackend

__all__ = ["LlamaCppBackend"]
