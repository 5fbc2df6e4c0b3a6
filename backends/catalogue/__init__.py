"""Backends by name: ``embedded:smollm2``, a file, a URL, or the entry point of an installed plugin."""
