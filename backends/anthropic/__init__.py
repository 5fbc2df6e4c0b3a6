"""Models behind Anthropic's own API: texts, and scores counted in drawn answers.

Takes a model's name and a key; gives a backend that asks `backends.openai`'s questions in the words of this API.
"""

from backends.anthropic.backend import AnthropicBackend

__all__ = ["AnthropicBackend"]
