"""The probe's experiments, a subject a file: each asks a server, and returns what it showed.

Takes a `ProbeSession`, gives an `Outcome`; `backends.openai.probe.run` says in which order they come.
"""
