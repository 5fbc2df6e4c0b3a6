"""Whether a server's numbers can be used: a short look before the first question, and checks while a run asks."""

from backends.openai.look.first import MOST_REQUESTS, look_at, same_model
from backends.openai.look.own_questions import MOST_DRAWN, RunChecks
from backends.openai.look.session import Look
from backends.openai.look.thorough import thorough

__all__ = ["MOST_DRAWN", "MOST_REQUESTS", "Look", "RunChecks", "look_at", "same_model", "thorough"]
