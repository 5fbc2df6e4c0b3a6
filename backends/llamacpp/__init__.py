"""GGUF models that run on llama.cpp."""
