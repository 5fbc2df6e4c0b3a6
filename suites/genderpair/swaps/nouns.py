"""Gendered nouns, titles and names: whether each stands as the person, and not in a name, a phrase or a compound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from suites.genderpair.pairs import GROUPS
from suites.genderpair.swaps.identities import TITLES, nouns_between
from suites.genderpair.swaps.verbs import VERBS, base_of_singular, bases_of, is_past
from suites.genderpair.swaps.words import LISTS, PHRASES, UNLISTED, Word, Words
from suites.genderpair.texts.lexicon import FORMS, NEOPRONOUNS

_COMPOUND = re.compile(r"(?:man|men|woman|women|boys?|girls?|lady|ladies|father|mother|brother|sister|wife|wives)$")
_HALF = re.compile(r"^(?:step|half|ex|god|great|grand|foster)?-?")
_ADJECTIVES = frozenset(
    ["male", "female", "nonbinary", "transmasculine", "transfeminine", "cisgender male", "cisgender female"]
)
#: A person's place after these is no person's name: in Paris.
_OF_PLACES = frozenset(["in", "near"])
_PLURALS = re.compile(r"(?:men|ladies|[^s]s)$")
#: Forms of address by group, in lower case.
TITLES_OF = {group: frozenset(title.lower() for title in titles) for group, titles in TITLES.items()}
_ALL_TITLES = frozenset[str]().union(*TITLES_OF.values())


@lru_cache
def nouns_of(source: str) -> frozenset[str]:
    """The nouns that a swap from ``source`` changes, in lower case."""
    found = {noun for to in GROUPS if to != source for noun in nouns_between(source, to)}
    return frozenset(noun for noun in found if source != "neither" or "nonbinary" in noun)


@lru_cache
def gendered_words() -> frozenset[str]:
    """Every gendered word of the lists, of any group."""
    words = {word for group in UNLISTED.values() for word in group}
    words |= {noun for group in ("male", "female") for noun in nouns_of(group)}
    return frozenset(words | {form for group in ("male", "female") for form in FORMS[group]})


def has_phrase(words: Words, group: str) -> bool:
    """Whether one of the group's fixed phrases stands in the text."""
    text = " ".join(words.text.lower().replace("’", "'").split())
    return any(re.search(rf"\b{re.escape(phrase)}\b", text) for phrase in PHRASES[group])


def has_unsafe_noun(words: Words, target: str, aspect: str, source: str) -> bool:
    """Whether a gendered noun of ``source`` is none that can be swapped, or does not stand as a plain noun."""
    own = frozenset([target.casefold()]) if aspect in ("identities", "titles") else frozenset()
    if source != "neither" and has_phrase(words, source):
        return True
    if any(word.lower in LISTS["sex_bound"] for word in words.all):
        return True
    nouns = nouns_of(source) | own
    for at, word in enumerate(words.all):
        plain = word.plain
        if plain in nouns or word.lower in nouns:
            if not _stands_plainly(words, at, plain, own):
                return True
        elif _is_unlisted(word.lower, plain, source, nouns):
            return True
    return False


def _is_unlisted(lower: str, plain: str, source: str, nouns: frozenset[str]) -> bool:
    if lower in UNLISTED[source] or plain in UNLISTED[source]:
        return True
    if "-" in lower:
        parts = lower.split("-")
        return any(part in gendered_words() or part in nouns or part.rstrip("s") in gendered_words() for part in parts)
    if source == "neither":
        return False
    other = "female" if source == "male" else "male"
    known = plain in LISTS["innocent"] or plain in nouns_of(other) or plain in UNLISTED[other]
    return not known and _COMPOUND.search(plain) is not None and plain not in nouns_of(source)


def _stands_plainly(words: Words, at: int, plain: str, own: frozenset[str]) -> bool:
    """Whether a noun has its article or possessive before it, and after it what may follow a noun's phrase."""
    word = words.all[at]
    if word.text.isupper() and len(word.text) > 1:
        return False
    if plain in _ADJECTIVES or (plain in own and plain.split()[-1] in ("transgender", "cisgender")):
        return True
    plural = _PLURALS.search(plain) is not None
    if word.lower.endswith("'") or (plural and word.lower.endswith("'s")):
        return False
    if not word.lower.endswith("'s") and not _may_follow(words.next(at), plural):
        return False
    if plain in LISTS["kin_names"] and word.opens and words.next(at) != "of":
        return True  # Mother knows
    if word.text[0].isupper() and not (word.opens and plural):
        return False
    return (plural and not _leads_a_verb(words.before(at))) or _has_determiner(words, at)


def _leads_a_verb(before: str | None) -> bool:
    return before in LISTS["modals"] or before in ("to", "oh", "i", "we", "they", "you")


def _may_follow(follower: str | None, plural: bool) -> bool:
    if follower is None:
        return True
    if follower in LISTS["function"] and follower != "of":
        return True
    if follower in LISTS["adverbs"] or follower.endswith("ly") or is_past(follower):
        return True
    return follower in VERBS if plural else base_of_singular(follower) is not None


def _has_determiner(words: Words, at: int) -> bool:
    """Whether an article or a possessive begins the noun's phrase, at most four words before."""
    for _ in range(4):
        if at == 0 or words.all[at].gap not in ("", ","):
            return False
        before = words.all[at - 1].lower
        if before in LISTS["determiners"] or before.endswith(("'s", "s'")):
            return True
        if before in LISTS["function"] and before not in ("and", "only", "most", "once", "still", "even"):
            return False
        at -= 1
    return False


def has_name(words: Words, target: str, aspect: str, source: str) -> bool:
    """Whether a name stands in the text that a swap would break, or that may be another person's."""
    name = target.casefold() if aspect == "names" else None
    titled = set()
    for at, word in enumerate(words.all):
        title = _title_before(words, at)
        if title in _ALL_TITLES:
            if title in TITLES_OF[source]:
                titled.add(word.lower.removesuffix("'s"))
            follower = words.at(at + 1)
            if follower is not None and not follower.gap and follower.text[0].isupper():
                return True
            continue
        if not word.text[0].isupper():
            continue
        if name is not None and word.plain == name:
            if _is_no_person(words, at):
                return True
        elif not _is_common(words, at, word):
            return True
    return len(titled) > 1


def _title_before(words: Words, at: int) -> str | None:
    word = words.at(at - 1)
    here = words.all[at]
    if word is None or here.gap not in ("", ".") or not here.text[0].isupper():
        return None
    return word.lower if word.text[0].isupper() else None


def _is_no_person(words: Words, at: int) -> bool:
    """Whether the target's name is part of a longer name, of a thing or of a place: a Martin, in Jordan."""
    before, after = words.at(at - 1), words.at(at + 1)
    if after is not None and not after.gap and after.text[0].isupper() and after.lower not in LISTS["function"]:
        return True
    if before is None or words.all[at].gap or words.all[at].opens:
        return False
    named = before.text[0].isupper() and not before.opens
    opens_named = before.opens and before.text[0].isupper() and before.lower not in LISTS["openers"]
    return (
        named
        or opens_named
        or before.lower in LISTS["determiners"] - {"that", "which"}
        or before.lower in _OF_PLACES | {"to", "from"}
    )


def _is_common(words: Words, at: int, word: Word) -> bool:
    """Whether a capitalised word is certainly no person's name."""
    lower = word.lower.removesuffix("'s")
    if lower in LISTS["capitals"] or word.lower in LISTS["capitals"]:
        return True
    if lower in _ALL_TITLES:
        after = words.at(at + 1)
        return after is not None and after.text[0].isupper()
    shouted = len(word.text) > 1 and word.text.isupper()
    if shouted:
        return False
    if not word.opens:
        return words.before(at) in _OF_PLACES
    contraction = word.lower.split("'")[0]
    if lower in LISTS["openers"] or contraction in LISTS["openers"] or contraction in _all_pronouns():
        return True
    if lower in LISTS["kin_names"] or (lower.endswith("ing") and bases_of(lower) & VERBS):
        return True
    if _PLURALS.search(lower) and lower in nouns_of("male") | nouns_of("female"):
        return True
    return lower.endswith("s") and lower[:-1] in LISTS["persons"]


@lru_cache
def _all_pronouns() -> frozenset[str]:
    return frozenset(form for forms in (*FORMS.values(), *NEOPRONOUNS) for form in forms)


def counterparts_meet(words: Words, source: str) -> bool:
    """Whether a noun and its counterpart both stand in the text: "the boys and the girls" would become one."""
    present = {word.plain for word in words.all}
    pairs: Sequence[tuple[str, str]] = [
        (noun, other) for to in GROUPS if to != source for noun, other in nouns_between(source, to).items()
    ]
    return source != "neither" and any(noun in present and other.casefold() in present for noun, other in pairs)
