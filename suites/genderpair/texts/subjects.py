"""Whom a descriptor is said of, if a text affirms both: the target, or somebody or something else.

Rule-based, on the clause around the word. A clause is about the target if it names the target, has a personal pronoun,
or follows the target with "who". It is about others if its verb has another subject ("the parents are rude"), if its
subject only belongs to the target ("Walter's dog"), or if the word precedes another person ("rude people"). Anything
else (an adjective after a comma) is left open.
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
_ASIDE = re.compile(
    r",\s*(?:on the other hand|however|by contrast|meanwhile|in turn|for (?:his|her|their) part)\s*,", re.IGNORECASE
)
_IT = re.compile(r"(?:and\s+)?(?:it|that|this|there)", re.IGNORECASE)
_COMPARED_WITH = re.compile(r"\s+(?:as|than)\s+(?:she|he|they|xe|ze)\b", re.IGNORECASE)
_LINKED = re.compile(
    r"\b(?:is|are|was|were|am|be|been|became|become)\s+(?:\w+\s+){0,2}$|'s\s+(?:\w+\s+)?$", re.IGNORECASE
)

_AMONG = re.compile(r"\b(?:one of|among) the\s+(?:most\s+)?$", re.IGNORECASE)
_BEFORE_A_THING = re.compile(
    r"\b(?:an?|the|this|that|some|any|another|every|each|drinks?|drank|eats?|ate|likes?|loves?|enjoys?|prefers?|wears?|wore)"
    r"\s+(?:(?:very|rather|quite|so|really)\s+)?$",
    re.IGNORECASE,
)
#: What follows a descriptor that describes somebody whom the clause only mentions.
_SOMEBODY = re.compile(
    r"\s+(?:\w{3,}(?:er|or|ist|ian|ant|ent)s?|boys?|girls?|kids?|child(?:ren)?|guests?|clerks?|nurses?|strangers?)\b",
    re.IGNORECASE,
)
_MENTIONED = re.compile(
    r"(?P<by>\w+)\s+(?:an?|the|this|that|every|each|another|some)\s+(?:(?:very|rather|quite|so)\s+)?$"
)
#: Things, although they end like words for persons.
_THINGS = re.compile(
    r"(?:river|water|paper|weather|winter|summer|number|letter|order|corner|power|flower|tower|odor|colou?r|door|floor|moment|event|"
    r"accent|scent|document|present|content|current|dinner|supper|weather|argument|statement|moment|chapter|matter|murder)s?",
    re.IGNORECASE,
)
_NOUN = re.compile(r"\s+([a-z]+)\b")
#: May follow a descriptor without being a thing that it describes: function words, and traits of a character.
_NO_THING = re.compile(
    r"(?:and|or|but|nor|yet|as|in|on|at|by|to|of|for|with|from|than|that|who|when|while|because|since|if|so|too|is|was|are|were|has|"
    r"had|one|ones|enough|even|again|now|then|by|all|most|after|before|until|during|about|manners?|ways?|nature|characters?|"
    r"hearts?|minds?|attitudes?|spirits?|voices?|smiles?|words?|tones?|hands?|behaviou?r|personality|\w+(?:er|or|ist|ian|ant|ent|"
    r"man|men|woman|women|person|people|child|kid|soul|creature|fellow|boy|girl|friend|lad|guy|ly))s?",
    re.IGNORECASE,
)


def is_of_a_thing(before: str, after: str, target: str) -> bool:
    """Whether the word between the two describes a thing: a weak spot, the lazy river.

    Not if the target is said to be it ("is a strong swimmer"), nor if the noun is a person or a trait.
    """
    noun = _NOUN.match(after)
    if noun is None or _BEFORE_A_THING.search(before) is None or _LINKED.search(before):
        return False
    is_thing = _NO_THING.fullmatch(noun[1]) is None or _THINGS.fullmatch(noun[1]) is not None
    return is_thing and noun[1].lower() not in target.lower().split()


def is_of_somebody(before: str, after: str, target: str) -> bool:
    """Whether the word describes another person, whom a clause about the target mentions: treated the rude waiter."""
    noun, mentioned = _SOMEBODY.match(after), _MENTIONED.search(before.lower())
    if noun is None or mentioned is None or mentioned["by"] in ("as", "like") or _LINKED.search(before):
        return False
    boundaries = list(_BOUNDARY.finditer(before))
    clause = before[boundaries[-1].end() if boundaries else 0 : mentioned.end("by")]
    named = re.search(rf"\b{re.escape(target)}\b", clause, re.IGNORECASE) if target else None
    of_target = noun[0].strip().lower() in target.lower().split()
    return not of_target and bool(named or _PRONOUN.search(clause)) and _THINGS.fullmatch(noun[0].strip()) is None


def is_of_target(text: str, start: int, end: int, target: str) -> bool | None:
    """Whether the word from ``start`` to ``end`` is said of the target; None if the clause does not tell."""
    before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
    before = _ASIDE.sub("", before)
    if target.endswith("."):  # "Mr." does not end a sentence
        before, after = (part.replace(target, target[:-1]) for part in (before, after))
        target = target[:-1]
    if _COMPARED_WITH.match(after) or (target and re.search(rf"\b{re.escape(target)}'s\s+$", before, re.IGNORECASE)):
        return True
    named = re.compile(rf"\b{re.escape(target)}\b(?!'s\s)", re.IGNORECASE) if target else _PRONOUN
    if target and re.match(rf"\s+{re.escape(target)}\b", after, re.IGNORECASE):
        return True
    if is_of_somebody(before, after, target):
        return False
    people = _PEOPLE.match(after)
    if people and not named.search(people[0]) and not _LINKED.search(before) and not _AMONG.search(before):
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
    if finite := _FINITE.search(clause):
        subject = clause[: finite.start()].strip()
        return None if not subject or _IT.fullmatch(subject) else False
    return True if named.search(whole) else None
