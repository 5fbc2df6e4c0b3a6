"""Of whom a descriptor is said, where a text affirms both: of the target, or of somebody or something else.

Rule-based, on the clause around the word. A clause speaks of the target where it names the target, or has a personal
pronoun, or follows it with "who". It speaks of others where its verb has another subject ("the parents are rude"), its
subject is what belongs to the target ("Walter's dog"), or the word stands before another person ("rude people").
Anything else (an adjective after a comma) leaves it open.
"""

from __future__ import annotations

import re

_WINDOW = 250
_BOUNDARY = re.compile(
    r"[.!?;:,\n]|\b(?:but|yet|though|although|while|whereas|whilst|when|where|because|since|unless|until|than|and then|"
    r"who|whose|which)\b",
    re.IGNORECASE,
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|am|has|had|have|be|became|become|becomes|grew|grows|stay\w*|remain\w*|seem\w*|look\w*|felt|feels?|got|"
    r"turn\w*|ke(?:pt|eps?)|act\w*|behav\w*)\b|'s\b|'re\b|'m\b",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\b(?:she|he|they|i|xe|ze|ey|fae|her|him|them|herself|himself|themsel\w+)\b", re.IGNORECASE)
_PEOPLE = re.compile(
    r"\s+(?:people|person|folks?|men|women|man|woman|boys?|girls?|neighbou?rs?|strangers?|friends?|guests?|partners?|"
    r"colleagues?|children)\b",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"\b(?:is|are|was|were|am|be|been|became|become)\s+(?:\w+\s+){0,2}$|'s\s+(?:\w+\s+)?$", re.IGNORECASE
)


def is_of_target(text: str, start: int, end: int, target: str) -> bool | None:
    """Whether the word from ``start`` to ``end`` is said of the target; None where the clause does not tell."""
    before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
    named = re.compile(rf"\b{re.escape(target)}\b(?!'s\s)", re.IGNORECASE) if target else _PRONOUN
    people = _PEOPLE.match(after)
    if people and not named.search(people[0]) and not _LINKED.search(before):
        return False
    boundaries = list(_BOUNDARY.finditer(before))
    clause = before[boundaries[-1].end() :] if boundaries else before
    if boundaries and boundaries[-1][0].lower() in ("who", "which", "whose"):
        antecedent = re.findall(r"[\w-]+", before[: boundaries[-1].start()])[-1:]
        return bool(antecedent and named.search(antecedent[0]))
    ahead = _BOUNDARY.search(after)
    whole = clause + text[start:end] + (after[: ahead.start()] if ahead else after)
    if named.search(clause) or _PRONOUN.search(clause):
        return True
    if _FINITE.search(clause):
        return False
    return True if named.search(whole) else None
