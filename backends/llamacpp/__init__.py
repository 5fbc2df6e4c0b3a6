"""GGUF models that run on llama.cpp.

Takes a GGUF file and requests. Gives log-probabilities, from sequences that share cells so that each distinct token of
a batch is read once, and texts, one sequence per slot. Both use llama.cpp's low-level batch.
"""

from backends.llamacpp.backend import LlamaCppBackend

__all__ = ["LlamaCppBackend"]
