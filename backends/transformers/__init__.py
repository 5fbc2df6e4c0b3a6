"""Models that run on transformers and torch."""
