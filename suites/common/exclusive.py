"""Which continuations of one prompt exclude each other, so that their probabilities may be added up."""

from __future__ import annotations

from collections.abc import Sequence

from backends.base import ContinuationScore


def exclusive(scores: Sequence[ContinuationScore]) -> list[ContinuationScore]:
    """The scores without those whose tokens begin with all of another one's.

    Where digits are tokens of their own, " 1" begins " 10", and its probability holds that of " 10"
    already. Texts that begin each other in other tokens exclude each other all the same. Where a server
    told no tokens, nothing is left out: such scores are upper bounds, and adding those up is safe. Nor is
    a score of which more is known left out for an upper bound, which may be that of the first tokens alone.
    """
    paths = [_path(score) for score in scores]
    told = set(paths) - {()}
    known = {path for score, path in zip(scores, paths, strict=True) if score.low is not None} - {()}
    return [
        score
        for score, path in zip(scores, paths, strict=True)
        if not any(path[:n] in (told if score.low is None else known) for n in range(1, len(path)))
    ]


def _path(score: ContinuationScore) -> tuple[tuple[str, int, int | str], ...]:
    """The tokens as far as they tell one path from another; empty where the first is not told."""
    if not score.tokens or score.tokens[0].start > 0:
        return ()
    return tuple((score.boundary, t.start, t.text if t.token_id is None else t.token_id) for t in score.tokens)
