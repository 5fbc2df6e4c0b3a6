"""The routes to log-probabilities that servers offer, each parsed strictly.

Takes a request and the proven capabilities; gives a score or an upper bound per continuation.
"""

from backends.openai.scoring.routes import score, tokens_drawn
from backends.openai.scoring.tokenizer import RemoteTokenizer

__all__ = ["RemoteTokenizer", "score", "tokens_drawn"]
