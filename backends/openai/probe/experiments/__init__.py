"""The probe's experiments, one subject per file: each sends requests, and returns what they showed.

Takes a `ProbeSession`, gives an `Outcome`; `backends.openai.probe.run` sets their order.
"""
