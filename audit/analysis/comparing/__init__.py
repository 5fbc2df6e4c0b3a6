"""Compares models: paired differences, decisions about them, and the effect of changing a model."""
