"""Backends without a model: planted answers, and completions recorded elsewhere."""
