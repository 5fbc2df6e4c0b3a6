"""How many requests may check a hosted model's answers, beside those that ask for them.

Up to 1,000 questions at most 20, or 5 % if that is more; above, at most 50, or 2 %. Words are drawn after some
questions, most of them early and the rest at the end, as far as was asked; the rest of the requests repeat questions.
"""

from __future__ import annotations

import math

#: Questions that are repeated: at least so many, and this share; in small audits at most that share.
_FEWEST_REPEATED, _REPEATED, _LARGEST_SHARE = 8, 0.015, 0.25
#: Draws among the first questions and at the end; then one more for each so many questions.
_EARLY, _LATE, _FEW, _EACH_EARLY, _EACH_LATE = 9, 3, 400, 30, 100
MOST_EARLY, MOST_LATE = 22, 8


def most_checks(questions: int) -> int:
    """The most requests that check the answers to so many questions."""
    return max(20, questions // 20) if questions <= 1000 else max(50, questions // 50)


def drawn_early(asked: int) -> int:
    """After how many of the first ``asked`` questions words are drawn at once."""
    return min(_EARLY + max(asked - _FEW, 0) // _EACH_EARLY, MOST_EARLY, asked)


def drawn_late(asked: int) -> int:
    """After how many more words are drawn once ``asked`` questions are answered and no more come."""
    return min(_LATE + max(asked - _FEW, 0) // _EACH_LATE, MOST_LATE, asked - drawn_early(asked))


def number_to_repeat(scored: int) -> int:
    """How many of ``scored`` questions are asked a second time."""
    left = most_checks(scored) - drawn_early(scored) - drawn_late(scored)
    wanted = max(_FEWEST_REPEATED, min(math.ceil(_REPEATED * scored), left))
    return min(wanted, math.ceil(_LARGEST_SHARE * scored))
