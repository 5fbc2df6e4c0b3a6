"""Swaps the pronouns of one gender group for another's, with the verbs that agree with them.

Rule-based, without a parser: the neighbouring words decide the case of an ambiguous form (her, his), and a verb is
changed if it follows its subject, directly or after an "and" in the same sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from suites.genderpair.swaps.verbs import VERBS, bases_of, singular_of
from suites.genderpair.swaps.words import LISTS
from suites.genderpair.texts.lexicon import FORMS, NEOPRONOUNS, SINGULAR_TO_PLURAL, word_sets

_WORDS = word_sets("pronouns")
_LETS = _WORDS["verbs_of_letting"] | _WORDS["verbs_of_seeing"]
_PLURAL_TO_SINGULAR = {plural: singular for singular, plural in SINGULAR_TO_PLURAL.items()}
_ADJECTIVE_ENDING = re.compile(r"(?:ful|ous|ive|able|ible|less)$")
_NEXT_WEEK = re.compile(
    r"\s*(?:last|next|this)\s+(?:week|month|summer|winter|night|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b", re.I
)
_ONE_OF_SEVERAL = re.compile(r"\b(?:an?|some|any|another|no|two|many|one|this|that)\s(?:\w+\s){1,2}of\s$", re.I)
_ADVERB = r"(?:\w+ly|always|never|also|often|still|just|only|even|soon|now|then|not|once|both|perhaps|sometimes|who)"
#: Adverbs that stand before verbs alone.
_OF_VERBS = re.compile(r"\b(?:always|never|often|rarely|seldom|sometimes|usually)\s*$", re.IGNORECASE)
#: What can only be a verb's object after the verb's own "and".
_OBJECT = re.compile(r"\s+(?:the|an?|his|hers?|their|my|your|our|it|him|them)\b", re.IGNORECASE)
_NO_VERBS = LISTS["function"] | LISTS["times"]
#: After "her" these are not nouns: bit her hard; with her gone.
_ADVERBS = frozenset(["hard", "well", "badly", "fast", "back", "off", "away", "again", "twice", "first", "alone"])
_STATES = frozenset(["gone", "away", "here", "there", "around", "asleep", "dead", "present", "absent", "back", "out"])
_DETERMINER = re.compile(r"\s+(?:her|his|their|the|an?|my|your|this|that|it|them|him)\b", re.I)
_PLACE = re.compile(r"\b(?:to|in|at|on|into)\b")
#: A woman as the verb's subject: "her" after it is a possessive.
_OWN_SUBJECT = re.compile(
    r"\b(?:she|(?<!her\s)(?<!his\s)(?<!my\s)(?:\w*woman|girl|lady|mother|sister|daughter|wife|aunt|queen|\w+ess))\s+(?:\w+\s+){1,2}$",
    re.I,
)
_WORD = r"[\w]+(?:['’]\w+)?"
_INSERTION = r",\s*(?:too|however|though|of course)\s*,"
_BEFORE_A_QUESTION = re.compile(
    r"""(?:^|[.!?;:,(\n*"“'‘]\s*|\b(?:what|who|how|why|when|where|which|so|nor|neither|than|and|but|only|never|all)\s+)$""",
    re.IGNORECASE,
)
#: "he or she" is nobody's identity; "he/he" is one identity twice.
_EITHER_OF_TWO = "|".join(
    rf"(?:{'|'.join(one)})(?:\s*/\s*|\s+or\s+)(?:{'|'.join(other)})"
    for one, other in itertools.permutations(FORMS.values(), 2)
)
_MENTIONS_A_WORD = re.compile(r"\b(?:words?|pronouns?|terms?)\W*$", re.IGNORECASE)


def swap_pronouns(text: str, source: str, to: str) -> str:
    """``text`` with the pronouns of group ``source`` replaced by those of group ``to``; "he or she" is kept."""
    return _Pronouns(text, source, to).swapped()


def like(word: str, model: str) -> str:
    """``word`` capitalised like ``model``."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if model[0].isupper() else word


class _Pronouns:
    """One text, one direction. Remembers the end of the last subject, for verbs that follow an "and"."""

    def __init__(self, text: str, source: str, to: str) -> None:
        self.text, self.source, self.new = text, source, FORMS[to]
        self.number_changes = "neither" in (source, to)
        self.table: Mapping[str, str] = _PLURAL_TO_SINGULAR if source == "neither" else SINGULAR_TO_PLURAL
        self.sets = (FORMS[source], *NEOPRONOUNS) if source == "neither" else (FORMS[source],)
        self.subject_end: int | None = None
        self.verb, self.verb_changed = "", False

    def swapped(self) -> str:
        return self._pattern().sub(self._replace, self.text)

    def _pattern(self) -> re.Pattern[str]:
        auxiliaries = "|".join(a.replace("'", "['’]") for a in sorted(self.table, key=len, reverse=True))
        others = sorted({form for forms in self.sets for form in forms[1:]}, key=len, reverse=True)
        subjects, reflexives = "|".join(f[0] for f in self.sets), "|".join(f[4] for f in self.sets)
        if self.source == "neither":
            others.insert(0, "themselves")
            reflexives += "|themselves"
        own = "|".join([*others, subjects])
        verb = rf"(?!(?:{own}|and|or|but)\b){_WORD}"
        return re.compile(
            rf"\b(?P<anybody>{_EITHER_OF_TWO})\b"
            rf"|\b(?:(?P<before>{auxiliaries})(?P<gap>\s+(?:not\s+)?))?(?P<subject>{subjects})\b"
            rf"(?P<short>['’](?:s|re|ve|ll|d)\b)?(?P<mark>[}}\])*\"”]*)"
            rf"(?P<after>(?P<adverb>(?:\s+(?:{_ADVERB}|{reflexives})\b|{_INSERTION})*)(?P<space>\s+)(?P<verb>{verb}))?"
            rf"|\b(?P<other>{'|'.join(others)})\b"
            rf"|(?P<and>(?:\b(?:and|or|but)|,)(?:\s+{_ADVERB})*\s+)(?!(?:{auxiliaries})\s+(?:{subjects})\b)(?P<second>{verb})",
            re.IGNORECASE,
        )

    def _replace(self, match: re.Match[str]) -> str:
        if match["anybody"]:
            return match[0]
        if match["other"]:
            return self._other(match["other"], match)
        return self._second(match) if match["and"] else self._subject(match)

    def _other(self, word: str, match: re.Match[str]) -> str:
        """The form in the same case; if two cases look the same, the neighbouring words decide."""
        form = word.casefold()
        if form == "themselves":
            return like(self.new[4], word)
        cases = [case for forms in self.sets for case, f in enumerate(forms) if f == form and case]
        if len(cases) == 1 or 2 not in cases:
            return like(self.new[cases[0]], word)
        before, after = self.text[max(0, match.start() - 60) : match.start()], self.text[match.end() : match.end() + 60]
        after = re.sub(r"^[\s{\[*]+", " ", after)  # her {bold} brother
        possessive = _before_a_noun(after) and not (
            _is_object(before, after) if 1 in cases else _stands_alone(before, after)
        )
        return like(self.new[2] if possessive else self.new[next(c for c in cases if c != 2)], word)

    def _subject(self, match: re.Match[str]) -> str:
        before, gap, short, verb = (match[name] or "" for name in ("before", "gap", "short", "verb"))
        preceding = self.text[max(0, match.start() - 20) : match.start()]
        asks = bool(before) and _BEFORE_A_QUESTION.search(preceding) is not None
        if asks and self.number_changes:
            before = _with_apostrophe_of(like(self.table[_normalised(before)], before), before)
        if short and self.number_changes:
            short = _with_apostrophe_of(_contraction(_normalised(short), verb.lower(), self.source), short)
        self.verb, self.verb_changed = verb.lower(), False
        mentioned = _MENTIONS_A_WORD.search(preceding)  # the word {he} is short
        if verb and self.number_changes and not short and not asks and not mentioned:
            agreed = self._agreed(verb)
            self.verb_changed, verb = agreed != verb, agreed
        self.subject_end = match.end() if verb or short else None
        after = self._adverb(match["adverb"] or "") + (match["space"] or "") + verb if match["after"] else ""
        return before + gap + like(self.new[0], match["subject"]) + short + match["mark"] + after

    def _adverb(self, adverb: str) -> str:
        """Swap a reflexive between subject and verb: he himself walks."""
        own = "|".join([*(forms[4] for forms in self.sets), "themselves"])
        return re.sub(rf"\b(?:{own})\b", lambda m: like(self.new[4], m[0]), adverb, flags=re.IGNORECASE)

    def _second(self, match: re.Match[str]) -> str:
        """Swap a verb after "and" or a comma, if the last subject is still its own."""
        second = match["second"]
        if self.number_changes and self.subject_end is not None:
            between = self.text[self.subject_end : match.start()]
            if not re.search(r"[.!?;:\n]|\b(?:i|you|we|it|he|she|they|who|which|that)\b", between, re.I):
                words = between.strip(", ").split()
                follows_a_verb = self.verb_changed and len(words) <= 1 and not "".join(words).endswith("s")
                has_an_object = re.match(r"\s+(?!and\b|or\b)\w", self.text[match.end() : match.end() + 20]) is not None
                follows_a_verb |= self.verb_changed and has_an_object and _PLACE.search(between) is not None
                with_pronoun = re.match(r"\s+(?:it|them|him|her|us|me)\b", self.text[match.end() : match.end() + 20])
                follows_a_verb |= self.verb_changed and with_pronoun is not None
                surely = _is_surely_a_verb(match["and"], between) or self._has_an_object(match)
                if _normalised(second) in self.table or follows_a_verb or surely:
                    agreed = self._agreed(second, listed_only=not surely)
                    if agreed != second:
                        self.subject_end, second = match.end(), agreed
        return match["and"] + second

    def _has_an_object(self, match: re.Match[str]) -> bool:
        """Whether an article or a possessive follows: "and waters the lawn"; not "gives friends and fans credit"."""
        found = _OBJECT.match(self.text, match.end()) is not None and _normalised(match["second"]) not in _NO_VERBS
        return found and not bases_of(self.verb) & LISTS["giving"]

    def _agreed(self, verb: str, *, listed_only: bool = False) -> str:
        """The verb form for a subject of the other number, with the same capitals and apostrophe."""
        return _with_apostrophe_of(like(_agreeing(_normalised(verb), self.source, listed_only), verb), verb)


def _is_surely_a_verb(join: str, between: str) -> bool:
    """Whether no noun follows: "and never complains", "but keeps going"; not "nothing but lies"."""
    if _OF_VERBS.search(join):
        return True
    return join.strip().lower() == "but" and not re.search(
        r"\b(?:nothing|all|anything|none)\s*$", between, re.IGNORECASE
    )


def _before_a_noun(after: str) -> bool:
    word = re.match(r"\s*(\w[\w'’-]*)", after)
    return word is not None and word[1].lower() not in _WORDS["no_noun_follows"]


def _is_object(before: str, after: str) -> bool:
    """Whether "her" is an object although the next word might be a noun."""
    verb = _last_word(before)
    found = re.match(r"\s*([\w'’-]+)(.*)", after, re.DOTALL)
    assert found is not None
    word, rest = found[1].lower(), found[2]
    if _DETERMINER.match(f" {word} "):
        return True  # cost her her job
    if _NEXT_WEEK.match(after):
        return bool(verb) and verb not in _WORDS["no_noun_follows"] | _WORDS["before_a_time"]
    ends = not _before_a_noun(rest) or not rest[:1].isspace()
    if _is_given(before, after) or (ends and word == "home" and verb in _WORDS["verbs_of_leading"]):
        return True
    if word in ("better", "more", "less", "best", "most") and ends and bool(verb):
        return True
    if verb in _WORDS["verbs_of_seeing"] and word.endswith("ing") and word not in _WORDS["ing_nouns"]:
        return True
    if verb in _LETS and (word in _WORDS["verbs_only"] or (word in _WORDS["base_verbs"] and _DETERMINER.match(rest))):
        return True
    if (ends and word in _ADVERBS and verb not in ("", "with")) or (verb == "with" and word in _STATES and ends):
        return True
    if ends and verb in _WORDS["verbs_of_making"] and (word in _WORDS["adjectives"] or _ADJECTIVE_ENDING.search(word)):
        return True
    return ends and word.endswith("ly") and word not in _WORDS["ly_nouns"] and bool(verb)


def _is_given(before: str, after: str) -> bool:
    """Whether "her" is an indirect object: gave her money, taught her French."""
    found = re.match(r"\s*([\w'’-]+)", after)
    if found is None or _last_word(before) not in _WORDS["verbs_of_giving"] or _OWN_SUBJECT.search(before):
        return False
    thing = found[1]
    language = _last_word(before) in ("teach", "teaches", "taught", "teaching") and thing[0].isupper()
    return language or thing.lower() in _WORDS["given_things"]


def _stands_alone(before: str, after: str) -> bool:
    """Whether "his" stands alone: a friend of his came."""
    word = re.match(r"\s*(\w+)", after)
    return word is not None and word[1].lower() in _WORDS["finite"] and _ONE_OF_SEVERAL.search(before) is not None


def _last_word(text: str) -> str:
    found = re.search(r"(\w+)\s+$", text)
    return found[1].lower() if found else ""


def _normalised(word: str) -> str:
    return word.lower().replace("’", "'")


def _with_apostrophe_of(word: str, model: str) -> str:
    """``word`` with the same kind of apostrophe as ``model``."""
    return word.replace("'", "’") if "’" in model else word


def _contraction(short: str, verb: str, source: str) -> str:
    if source == "neither":
        return "'s" if short in ("'re", "'ve") else short
    if short == "'s":
        return "'ve" if verb in _WORDS["done"] or (verb.endswith("ed") and verb not in _WORDS["states"]) else "'re"
    return short


def _agreeing(verb: str, source: str, listed_only: bool) -> str:
    """The verb form for a subject of the other number. ``listed_only``: change only verbs in the word lists."""
    if source == "neither":
        if verb in _PLURAL_TO_SINGULAR:
            return _PLURAL_TO_SINGULAR[verb]
        known = verb in _WORDS["base_verbs"] or (verb in VERBS and not listed_only and verb not in LISTS["function"])
        return singular_of(verb) if known else verb
    if verb in SINGULAR_TO_PLURAL:
        return SINGULAR_TO_PLURAL[verb]
    return _plural_form(verb, listed_only)


def _plural_form(verb: str, listed_only: bool) -> str:
    if not verb.endswith("s"):
        return verb
    stems = [verb[:-1], verb.removesuffix("es"), verb.removesuffix("ies") + "y"]
    found: Sequence[str] = [stem for stem in stems if stem in _WORDS["base_verbs"]]
    if found or listed_only or verb in _WORDS["no_verbs"]:
        return found[0] if found else verb
    if re.search(r"[^aeiou]ies$", verb) and len(verb) > 4:
        return verb[:-3] + "y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return verb[:-2]
    return verb[:-1] if not verb.endswith(("ss", "us", "is", "'s")) and len(verb) > 3 else verb
