"""Models behind Anthropic's own API: generated texts, and scores estimated from sampled answers.

Takes a model's name and a key; gives a backend that translates the requests of `backends.openai` into this API.
"""

from backends.anthropic.backend import AnthropicBackend

__all__ = ["AnthropicBackend"]
