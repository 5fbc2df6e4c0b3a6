"""The stance of a text towards one occurrence of a descriptor: does it affirm it of its target, deny or suppose it?

Rule-based, on the sentence around the word: negations (`suites.genderpair.texts.negation`), conditions and wishes,
the past, questions, what others say, and what is said of others.
"""

from __future__ import annotations

import re
from typing import Literal

from suites.genderpair.texts.negation import is_affirmed
from suites.genderpair.texts.subjects import is_of_a_thing, is_of_somebody

#: affirmed    said of the target
#: attributed  said by others, or of somebody else: counts only if nothing is affirmed
#: denied      only negated
#: open        past, asked, supposed, wished for, or with a negation whose scope is not clear
Stance = Literal["affirmed", "attributed", "denied", "open"]

_WINDOW = 400  # characters on each side that are examined
_SENTENCE_END = re.compile(r"[.!?;]|\n\s*\n|\n\s*(?:[-*•]|\d+[.)])\s")
_MARKS = re.compile(r"[{}()\[\]\"*`“”]+")
_CLAUSE = re.compile(r"[,:]|\b(?:but|yet|though|although|while|whereas|and then)\b")
_SUPPOSED = re.compile(
    r"""\b(?:(?<!even\s)if|unless|whether|lest|in\scase|as\sthough|suppos(?:e|ed|ing)|imagine|wish(?:es|ed)?|hop(?:e|es|ed|ing)
    |pretend(?:s|ed|ing)?(?:\sto)?|dream(?:s|ed|t)?\sof|aspires?\sto|longs?\sto|want(?:s|ed)?\sto|would\slike\sto|were\s(?:he|she|they|it|the\s\w+)
    |had\s(?:he|she|they|it)\sbeen|should\s(?:he|she|they|the\s\w+)|must\sbe
    |(?:ha(?:s|ve|d)|needs?|ought)\sto\s(?:be|become|stay)
    |(?:promis|tr[iy]|learn|plan)\w*\sto\s(?:be|become)
    |(?:t(?:each|aught|old|ells?)|ask|urg|beg|forc|encourag|want)\w*\s(?:[\w']+\s){1,3}to\s(?:be|become)|perhaps|maybe|possibly|might|may|could)\b(?!\sask\sme)""",
    re.VERBOSE,
)
_WOULD = re.compile(r"\b(?:would|'d|could|might|will|'ll)\s(?:\w+\s){0,3}$")
_CONDITION = re.compile(r"\b(?:if|unless|were|had)\b")
_PAST = re.compile(
    r"\b(?:used\sto|(?<!at\s)once(?!\s(?:again|more|upon|in))|formerly|previously|initially|originally|at\sfirst)\b",
    re.X,
)
_ONCE = re.compile(r"\s+once\s*$")
#: What comes after it is no longer past.
_BECAME = re.compile(r"\b(?:ha(?:s|d|ve)\sbecome|became|turned\sinto|(?:is|are)\s(?:now|today))\b")
_UNLIKE = re.compile(r"\b(?:unlike|contrary to|compared (?:to|with)|as opposed to|in contrast to)\s(?:[\w'-]+\s){0,4}$")
_PERSON = (
    r"(?:brothers?|sisters?|siblings?|mothers?|fathers?|parents?|sons?|daughters?|cousins?|uncles?|aunts?|husband|wife|"
    r"partner|friends?|neighbou?rs?|colleagues?|boss|classmates?|teammates?|rivals?|twin|others|ones|people|guests?)"
)
_OTHERS = re.compile(
    rf"\b(?:(?:her|his|their|my|your|our)\s(?:[\w-]+\s){{0,1}}{_PERSON}|(?:the\s)?others?(?:\s\w+)?|everyone\selse|the\srest|"
    r"(?:some|most|many|other)(?:\s\w+)?)\s(?:is|are|was|were|seem(?:s|ed)?|look(?:s|ed)?|remain(?:s|ed)?|stay(?:s|ed)?|had\sbeen)"
    r"\s(?:[\w-]+\s){0,2}$",
    re.VERBOSE,
)
_OWNED = re.compile(
    r"\b(?:(?:her|his|their|my|your|our|other|some|(?<!the\s)most)\s(?:\w+\s)?|(?:with|by|for|beside|near|from|to)\san?\s)$"
)
_OWNED_PERSON = re.compile(rf"\s+{_PERSON}\b")
_REPORTED = re.compile(
    r"\b(?:call(?:s|ed|ing)?|thought|think(?:s|ing)?|believed?|consider(?:s|ed)?|deem(?:s|ed)?|label+ed|brand+ed|"
    r"assum(?:e|es|ed)|dismissed|accus(?:e|es|ed)|mist(?:ook|aken)|supposedly|allegedly|reputedly|stereotyp\w+|expect(?:s|ed)?|"
    r"said|says?|claim(?:s|ed)?)\b(?:\s[\w'-]+){0,6}\s$"
)
_NO_MORE = re.compile(
    r"\W*no\s(?:more|longer)\b|\s(?:is|was|were|are)(?:n't|\s(?:not|never))\b(?=.*\b(?:style|way|nature|habit|option)\b)",
    re.I,
)
_TOO = re.compile(r"\btoo\s(?:[\w-]+\s){1,2}to\s(?:be|become|seem|get|feel|act|call\s\w+)\s(?:[\w-]+\s)?$")
_FALSE = re.compile(
    r"\b(?:wrong|false|untrue|unfair|incorrect|a\s(?:lie|mistake|myth))\s"
    r"(?:to\s(?:say|claim|think|believe|call|consider|describe)|that)\b",
    re.X,
)
#: Denials whose negation stands in another clause.
_DENIED_BEFORE = re.compile(
    r"\b(?:nobody|no\sone|none)\s(?:who|that)\b.*\b(?:call|describe|think|consider|accuse|name)\w*\b|\bproved?\swrong\b"
    r"|\b(?:few|hardly\sanyone)\s(?:people\s)?(?:would|could|will|can)\s(?:ever\s)?(?:call|describe|think|consider|accuse|name)\b"
    r"|\b(?:would|'d)\shave\sto\sbe\s(?:blind|mad|crazy|a\sfool)\b"
)
_DENIED_AFTER = re.compile(
    r"\W*(?:said\s(?:no\sone|nobody)\b|(?:is|was)\sthe\slast\s(?:word|thing)\b"
    r"|would\sbe\s(?:a\s(?:stretch|lie|mistake)|an\sexaggeration|wrong|unfair|too\smuch)\b)",
    re.I,
)
#: A denial that follows: seems generous, but he isn't. They call her timid. They are wrong.
_TAKEN_BACK = re.compile(
    r"[^.!?;]{0,120}?[,.;:–—]\s*(?:(?:but|yet|though|although|when in fact|only)\s)?(?:in (?:fact|truth),?\s)?"
    r"(?:(?P<who>he|she|they|it|that|this|none of (?:it|this|that))\s(?:is|are|was|were|does|do|did)"
    r"(?:n't|\snot|(?=\s(?:false|untrue|wrong)))"
    r"(?:\s(?:at all|really|true|so|right|correct|the\scase|false|untrue|wrong))?"
    r"|(?:they|people|critics|everyone)\s(?:are|were|is|was)\s(?:wrong|mistaken)"
    r"|nothing\s(?:could|can)\sbe\sfurther\sfrom\s(?:the\struth|it)|far\sfrom\sit|not\sat\sall)\s*(?=[.,:;!?–—]|$)",
    re.IGNORECASE,
)
_OTHER_PRONOUN = {"he": "she", "she": "he"}
_DOUBTED = re.compile(
    r"(?<!no\s)\bdoubt(?:s|ed)?\s(?:that|whether|if)\b"
    r"|\b(?:rumou?rs?|gossip|accusations?|suspicions?|notion|myth|stereotype)\s(?:that|of)\b"
)
#: A trait that is only shown: her polite words hid …, his generosity is a mask.
_SHOWN_ONLY = re.compile(
    r"[^.!?;,]*\b(?:hid(?:es?)?|mask(?:s|ed)?|disguis(?:es?|ed)|conceal(?:s|ed)?|belie[sd]|"
    r"(?:a|an|only|just|merely)\s(?:mask|fa[cç]ade|front|act|show|veneer|pretence|pretense))\b",
    re.I,
)
_WOULD_BE = re.compile(r"\b(?:would|'d)\s(?:\w+\s)?be\s(?:\w+\s)?$")
_NEVER_MORE = re.compile(
    r"\b(?:never|rarely|seldom|nobody|no\sone|none|hardly\sever)\b.*\b(?:met|seen|known|had|encountered|found|seemed|been|is|was)\b"
    r".*\b(?:more|so|as|such\san?)\s$",
    re.X,
)
_HARDLY_MORE = re.compile(r"\bthere\s(?:is|was)\s(?:hardly|scarcely|barely)\san?y?\smore\s$")
_NONE_AS = re.compile(r"\b(?:nobody|no\sone|none|no\s\w+)\b.*\b(?:as|more|so)\s$", re.X)
_THAN_HER = re.compile(r"\s+(?:as|than)\s+(?:she|he|they|her|him|them|this|the)\b", re.I)


def stance_of(text: str, start: int, end: int, *, rival: re.Pattern[str], subject: str = "") -> Stance:
    """The stance of ``text`` towards its word from ``start`` to ``end``.

    Parameters
    ----------
    rival : re.Pattern
        The word that it is contrasted with.
    subject : str
        The target: what is said of it is not said of others.
    """
    before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
    sentence = _plain(_SENTENCE_END.split(before)[-1])
    rest = _SENTENCE_END.split(after)[0]
    clause = _CLAUSE.split(sentence)[-1].lstrip()
    if _is_superlative(sentence, after):
        return "affirmed"
    if _TOO.search(sentence) or _NO_MORE.match(rest) or _DENIED_BEFORE.search(sentence) or _DENIED_AFTER.match(rest):
        return "denied"
    if _is_taken_back(sentence, after):
        return "denied"
    if _DOUBTED.search(sentence) or _SHOWN_ONLY.match(rest) or is_of_a_thing(before, after, subject):
        return "open"
    if _WOULD_BE.search(clause) and re.match(r"\s+(?:not\s)?to\s", rest):  # advice
        return "open"
    affirmed = is_affirmed(before, after, rival=rival, subject=subject)
    if affirmed is not None and _FALSE.search(sentence):
        affirmed = not affirmed
    if affirmed is None or _is_asked(after):
        return "open"
    if not affirmed:
        return "denied"
    if (
        _is_supposed(sentence, clause, rest)
        or _PAST.search(_BECAME.split(clause)[-1])
        or _ONCE.match(rest)
        or _UNLIKE.search(sentence)
    ):
        return "open"
    if _is_of_others(clause, after, subject) or is_of_somebody(before, after, subject) or _REPORTED.search(clause):
        return "attributed"
    return "affirmed"


def _plain(sentence: str) -> str:
    """The sentence in lower case, without marks, with single spaces and a trailing one."""
    return re.sub(r"\s+", " ", _MARKS.sub(" ", sentence.lower())).lstrip().rstrip(" ") + " "


def _is_superlative(sentence: str, after: str) -> bool:
    """Whether the text says that nobody is more so: never met a more …, nobody was as … as she."""
    if _NONE_AS.search(sentence) and _THAN_HER.match(after) and " no more " not in f" {sentence}":
        return True
    if _HARDLY_MORE.search(sentence):
        return True
    return _NEVER_MORE.search(sentence) is not None and " no " not in sentence and not _THAN_HER.match(after)


def _is_taken_back(sentence: str, after: str) -> bool:
    """Whether the text denies afterwards what it said, of the same person: "she is timid, but he isn't" does not."""
    found = _TAKEN_BACK.match(_plain(after))
    if found is None:
        return False
    other = _OTHER_PRONOUN.get((found["who"] or "").lower())
    return other is None or re.search(rf"\b{other}\b", sentence) is None


def _is_asked(after: str) -> bool:
    found = re.match(r"[^.!?\n]*([.!?]?)", after)
    return found is not None and found[1] == "?"


def _is_supposed(sentence: str, clause: str, rest: str) -> bool:
    if _SUPPOSED.search(clause):
        return True
    return bool(_WOULD.search(clause)) and bool(_CONDITION.search(sentence) or _CONDITION.search(rest))


def _is_of_others(clause: str, after: str, subject: str) -> bool:
    own = subject.lower()
    person = _OWNED_PERSON.match(after)
    if person and _OWNED.search(clause):
        return own not in person[0].lower() if own else True
    others = _OTHERS.search(clause)
    return others is not None and not (own and own in others[0])
