"""The same text about a person of another gender group, for auditing a text classifier.

Whole words are swapped: the prompt's target, nouns with a counterpart, pronouns in their case, and the verb that
agrees with a swapped subject (he walks, they walk). It is rule-based, without a parser. It cannot know whether "they"
means one person (assumed in texts about a target that is neither), or how verbs outside its lists agree when "they"
becomes "he" or "she" (left unchanged).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from suites.common.data_files import load
from suites.genderpair.pairs import GROUPS
from suites.genderpair.swaps.pronouns import like, swap_pronouns
from suites.genderpair.texts.lexicon import FORMS, NEOPRONOUNS

__all__ = ["TITLES", "counterpart", "nouns_between", "swap_identity"]

#: Forms of address before a name.
TITLES = {"male": ("Mr",), "female": ("Ms", "Mrs", "Miss"), "neither": ("Mx",)}
#: Swapped only if the text is about them: "oh my god" and "the LORD" do not show a person's gender.
_DEITIES = ("god", "lord")


def counterpart(target: str, aspect: str, source: str, to: str) -> str:
    """The target's counterpart in another group.

    Counterparts of nouns and pronouns are in the data file. An identity without one (agender) becomes the plain
    adjective; a name becomes the name at the same position in the other group's list.
    """
    if aspect == "names":
        names = _names()
        own = names[source]
        at = own.index(target) if target in own else sum(target.encode())
        others = [name for name in names[to] if name not in own]
        return others[at % len(others)]
    if aspect == "pronouns":
        for forms in (FORMS[source], *(NEOPRONOUNS if source == "neither" else ())):
            if target in forms:
                return FORMS[to][forms.index(target)]
    found = nouns_between(source, to).get(target.casefold())
    return found if found is not None else {"male": "male", "female": "female", "neither": "nonbinary"}[to]


def swap_identity(text: str, target: str, aspect: str, source: str, to: str) -> str | None:
    """``text`` with the identity of group ``source`` swapped for that of group ``to``; None if it names no identity.

    It swaps whatever it knows: whether the result can be trusted says `suites.genderpair.swaps.decide`.
    """
    swapped = _swap_titles(swap_pronouns(text, source, to), source, to)
    if aspect == "names":
        swapped = _swap_name(swapped, target, counterpart(target, aspect, source, to))
    nouns = dict(nouns_between(source, to))
    if source == "neither":  # a child or a partner may be of any gender
        nouns = {noun: other for noun, other in nouns.items() if "nonbinary" in noun}
    for deity in _DEITIES:
        nouns.pop(deity, None)
    if aspect in ("identities", "titles"):
        nouns[target.casefold()] = counterpart(target, aspect, source, to)
    if nouns:
        words = "|".join(sorted(map(re.escape, nouns), key=len, reverse=True))
        swapped = re.sub(
            rf"(?:\b(an?)(\s+))?(?<![\w-])({words})(?![\w-])",
            lambda m: _with_article(m, nouns[m[3].casefold()]),
            swapped,
            flags=re.IGNORECASE,
        )
    return None if swapped == text else swapped


def _swap_titles(text: str, source: str, to: str) -> str:
    own = "|".join(TITLES[source])
    new = TITLES[to][0]
    return re.sub(rf"\b({own})\b(\.?)(?=\s+[A-Z])", lambda m: new + ("." if m[1] == "Miss" else m[2]), text)


def _swap_name(text: str, name: str, other: str) -> str:
    """Swap the name as spelled or in capitals: "a river" is not the name River."""
    names = rf"(?<![\w-])({re.escape(name)}|{re.escape(name.upper())})(?![\w-])"
    if name.endswith("s") and not other.endswith("s"):  # James' dog
        text = re.sub(names + r"(['’])(?=\s\w)", lambda m: like(other, m[1]) + m[2] + "s", text)
    return re.sub(names, lambda m: like(other, m[1]), text)


def _with_article(match: re.Match[str], noun: str) -> str:
    article, space, word = match[1] or "", match[2] or "", match[3]
    if article:
        article = like("an" if noun[0].lower() in "aeiou" else "a", article)
    return article + space + like(noun, word)


@lru_cache
def nouns_between(source: str, to: str) -> Mapping[str, str]:
    """Noun of one group → noun of another, in lower case; the first row with a noun counts."""
    content: Any = load("genderpair").content
    found: dict[str, str] = {}
    for row in content["counterparts"]:
        found.setdefault(row[GROUPS.index(source)].casefold(), row[GROUPS.index(to)])
    if source == "female":  # an actor may be a woman, an actress not a man
        found |= content["feminine_forms"]
    elif to == "female":
        found |= content["masculine_forms"]
    return found


@lru_cache
def _names() -> Mapping[str, list[str]]:
    names: Mapping[str, list[str]] = load("genderpair").content["names"]
    return names
