"""Models behind OpenAI-style servers, which may be wrong about their own log-probabilities.

Takes a URL, a model's name and a key; gives a backend that probes the server first and uses only proven routes.
"""

from backends.http.usage import PriceTable
from backends.openai.backend import OpenAIBackend

__all__ = ["OpenAIBackend", "PriceTable"]
