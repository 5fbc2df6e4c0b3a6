"""Pronouns of one gender group swapped for another's, with the verbs that agree with them.

Rule-based, without a parser: a form that looks alike in two cases (her, his) is told by its
neighbours, and a verb by its subject right before it, or by "and" in the same sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

#: subject, object, possessive before a noun, possessive alone, reflexive
FORMS = {
    "male": ("he", "him", "his", "his", "himself"),
    "female": ("she", "her", "her", "hers", "herself"),
    "neither": ("they", "them", "their", "theirs", "themself"),
}
NEOPRONOUNS = (
    ("ey", "em", "eir", "eirs", "emself"),
    ("xe", "xir", "xir", "xirs", "xirself"),
    ("fae", "faer", "faer", "faers", "faerself"),
)
_SINGULAR_TO_PLURAL = dict(
    pair.split("/")
    for pair in [
        "is/are",
        "was/were",
        "has/have",
        "does/do",
        "isn't/aren't",
        "wasn't/weren't",
        "hasn't/haven't",
        "doesn't/don't",
    ]
)
_PLURAL_TO_SINGULAR = {plural: singular for singular, plural in _SINGULAR_TO_PLURAL.items()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO_NOUN_FOLLOWS = _words(
    """and or but is was were are am to for in on at with from by of as that who which when while because if so than
    then into onto over under about after before through during up down out off again too very not how why what
    where yesterday today tomorrow a an the this these those some i you we he she it they my your our everywhere
    here there alone either anyway"""
)
_MAKES = _words(
    """make makes made making call calls called calling consider considers considered find finds found think thinks
    thought keep keeps kept leave leaves left render renders rendered deem deems deemed"""
)
_SEES = _words(
    """see sees saw seen seeing watch watches watched watching hear hears heard hearing notice notices noticed find
    finds found catch catches caught keep keeps kept leave leaves left feel felt spot spotted imagine imagined"""
)
_LETS = _words("let lets letting make makes made help helps helped helping") | _SEES
_ADJECTIVES = _words(
    """good bad great nice happy sad angry lazy kind proud strong weak smart afraid tired bored safe calm warm cold
    busy quiet loud rude mean wise brave shy mad crazy sick healthy pretty rich poor humble modest bossy emotional
    diligent popular better worse awake alive interesting exhausted upset uncomfortable cruel polite gentle clumsy
    moody vain naive"""
)
_ADJECTIVE_ENDING = re.compile(r"(?:ful|ous|ive|able|ible|less)$")
_ING_NOUNS = _words(
    """wedding building clothing painting meeting feeling blessing drawing writing earring ring king string thing
    sibling offspring upbringing morning evening spring darling ceiling"""
)
_LY_NOUNS = _words("family belly ally bully reply butterfly assembly jelly")
_VERBS_ONLY = _words(
    """go come see find think know say tell ask become seem appear remain believe understand remember forget bring
    carry hold wear buy sell lose choose decide accept refuse grow learn teach read write speak listen hear sit bake
    join begin continue achieve succeed be do have realize realise feel eat"""
)
_NEXT_WEEK = re.compile(
    r"\s*(?:last|next|this)\s+(?:week|month|summer|winter|night|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b", re.I
)
_BEFORE_A_TIME = _words("during spent until was is")
_FINITE = _words(
    """is was were are has had will would can could may might must should does did came went said told made took got
    gave saw knew thought left lives works says comes goes"""
)
_ONE_OF_SOME = re.compile(r"\b(?:an?|some|any|another|no|two|many|one|this|that)\s(?:\w+\s){1,2}of\s$", re.I)
_BASE_VERBS = _words(
    """go come see look feel find think know say tell ask answer want need like love hate enjoy prefer hope wish try
    make take give get keep let help work play live learn teach study read write speak talk listen hear walk run
    move stand sit sleep wake eat drink cook bake clean build fix drive ride travel visit meet join leave stay start
    begin stop finish continue become seem appear remain believe understand remember forget care share show bring
    carry hold use wear buy sell pay spend save win lose lead follow manage support inspire treat serve face spread
    smile laugh cry shout yell argue fight strive aim plan decide choose accept refuse respect value dream embody
    exude possess represent deserve offer handle approach bear act behave grow change wonder worry dance sing paint
    create express struggle excel thrive complain watch wash reach catch push pass miss wait call turn open close
    identify focus ache cache discuss pause express own exist cause raise rise tend rely apply carry"""
)
#: Participles after "he's" that make it "he has". Of those in -ed, the ones that say a state make it "he is".
_DONE = _words(
    """been gone seen eaten taken given written spoken driven ridden fallen grown forgotten chosen gotten done had got
    made come become met found kept said told taught brought bought thought built spent felt heard held led"""
)
_STATES = _words(
    """tired bored talented excited interested married worried scared annoyed relaxed pleased surprised confused
    frightened ashamed embarrassed exhausted gifted skilled devoted dedicated determined disappointed frustrated
    depressed concerned supposed retired beloved distracted focused balanced composed red naked wicked sacred"""
)
_ADVERB = r"(?:\w+ly|always|never|also|often|still|just|only|even|soon|now|then|not|once|both|perhaps|sometimes|who)"
_NO_VERBS = _words(
    "perhaps always besides sometimes afterwards towards as this its us thus yes plus unless across his hers"
)
_WORD = r"[\w]+(?:['’]\w+)?"
_ASIDE = r",\s*(?:too|however|though|of course)\s*,"
_ASKS = re.compile(
    r"""(?:^|[.!?;:,(\n*"“'‘]\s*|\b(?:what|who|how|why|when|where|which|so|nor|neither|than|and|but|only|never|all)\s+)$""",
    re.IGNORECASE,
)
#: "he or she" is no identity; "he/he" is one twice.
_ANYBODY = "|".join(
    rf"(?:{'|'.join(one)})(?:\s*/\s*|\s+or\s+)(?:{'|'.join(other)})"
    for one, other in itertools.permutations(FORMS.values(), 2)
)
_AS_A_WORD = re.compile(r"\b(?:words?|pronouns?|terms?)\W*$", re.IGNORECASE)


def swap_pronouns(text: str, source: str, to: str) -> str:
    """``text`` with the pronouns of group ``source`` as those of group ``to``; "he or she" is left."""
    return _Pronouns(text, source, to).swapped()


def like(word: str, model: str) -> str:
    """``word`` with the capitals of ``model``."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[0].upper() + word[1:] if model[0].isupper() else word


class _Pronouns:
    """One text, one direction. Remembers the last subject, for verbs that follow an "and"."""

    def __init__(self, text: str, source: str, to: str) -> None:
        self.text, self.source, self.new = text, source, FORMS[to]
        self.number_changes = "neither" in (source, to)
        self.table: Mapping[str, str] = _PLURAL_TO_SINGULAR if source == "neither" else _SINGULAR_TO_PLURAL
        self.sets = (FORMS[source], *NEOPRONOUNS) if source == "neither" else (FORMS[source],)
        self.subject_end: int | None = None
        self.verb_changed = False

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
            rf"\b(?P<anybody>{_ANYBODY})\b"
            rf"|\b(?:(?P<before>{auxiliaries})(?P<gap>\s+(?:not\s+)?))?(?P<subject>{subjects})\b"
            rf"(?P<short>['’](?:s|re|ve|ll|d)\b)?(?P<mark>[}}\])*\"”]*)"
            rf"(?P<after>(?P<adverb>(?:\s+(?:{_ADVERB}|{reflexives})\b|{_ASIDE})*)(?P<space>\s+)(?P<verb>{verb}))?"
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
        """The form of the same case; where two cases look alike, the neighbours decide."""
        form = word.casefold()
        if form == "themselves":
            return like(self.new[4], word)
        cases = [case for forms in self.sets for case, f in enumerate(forms) if f == form and case]
        if len(cases) == 1 or 2 not in cases:
            return like(self.new[cases[0]], word)
        before, after = self.text[max(0, match.start() - 60) : match.start()], self.text[match.end() : match.end() + 60]
        possessive = _before_a_noun(after) and not (
            _is_object(before, after) if 1 in cases else _stands_for_its_noun(before, after)
        )
        return like(self.new[2] if possessive else self.new[next(c for c in cases if c != 2)], word)

    def _subject(self, match: re.Match[str]) -> str:
        before, gap, short, verb = (match[name] or "" for name in ("before", "gap", "short", "verb"))
        asks = bool(before) and _ASKS.search(self.text[: match.start()][-20:]) is not None
        if asks and self.number_changes:
            before = _typed(like(self.table[_plain(before)], before), before)
        if short and self.number_changes:
            short = _typed(_short(_plain(short), verb.lower(), self.source), short)
        self.verb_changed = False
        mentioned = _AS_A_WORD.search(self.text[: match.start()][-20:])  # the word {he} is short
        if verb and self.number_changes and not short and not asks and not mentioned:
            agreed = _typed(like(_agree(_plain(verb), self.source), verb), verb)
            self.verb_changed, verb = agreed != verb, agreed
        self.subject_end = match.end() if verb else None
        after = self._adverb(match["adverb"] or "") + (match["space"] or "") + verb if match["after"] else ""
        return before + gap + like(self.new[0], match["subject"]) + short + match["mark"] + after

    def _adverb(self, adverb: str) -> str:
        """A reflexive may stand before the verb: he himself walks."""
        own = "|".join([*(forms[4] for forms in self.sets), "themselves"])
        return re.sub(rf"\b(?:{own})\b", lambda m: like(self.new[4], m[0]), adverb, flags=re.IGNORECASE)

    def _second(self, match: re.Match[str]) -> str:
        """A verb after "and" or a comma, where the last subject is still its own."""
        second = match["second"]
        if self.number_changes and self.subject_end is not None:
            between = self.text[self.subject_end : match.start()]
            if not re.search(r"[.!?;:\n]|\b(?:i|you|we|it|he|she|they|who|which|that)\b", between, re.I):
                words = between.strip(", ").split()
                follows_a_verb = self.verb_changed and len(words) <= 1 and not "".join(words).endswith("s")
                if _plain(second) in self.table or follows_a_verb:
                    agreed = _typed(like(_agree(_plain(second), self.source, known=True), second), second)
                    if agreed != second:
                        self.subject_end, second = match.end(), agreed
        return match["and"] + second


def _before_a_noun(after: str) -> bool:
    word = re.match(r"\s*(\w[\w'’-]*)", after)
    return word is not None and word[1].lower() not in _NO_NOUN_FOLLOWS


def _is_object(before: str, after: str) -> bool:
    """Whether "her" is an object, although a word that might be a noun follows."""
    verb = _last_word(before)
    found = re.match(r"\s*([\w'’-]+)(.*)", after, re.DOTALL)
    assert found is not None
    word, rest = found[1].lower(), found[2]
    if _NEXT_WEEK.match(after):
        return bool(verb) and verb not in _NO_NOUN_FOLLOWS | _BEFORE_A_TIME
    ends = not _before_a_noun(rest) or not rest[:1].isspace()
    if verb in _SEES and word.endswith("ing") and word not in _ING_NOUNS:
        return True
    if verb in _LETS and word in _VERBS_ONLY:
        return True
    if ends and verb in _MAKES and (word in _ADJECTIVES or _ADJECTIVE_ENDING.search(word)):
        return True
    return ends and word.endswith("ly") and word not in _LY_NOUNS and bool(verb)


def _stands_for_its_noun(before: str, after: str) -> bool:
    """Whether "his" stands alone: a friend of his came."""
    word = re.match(r"\s*(\w+)", after)
    return word is not None and word[1].lower() in _FINITE and _ONE_OF_SOME.search(before) is not None


def _last_word(text: str) -> str:
    found = re.search(r"(\w+)\s+$", text)
    return found[1].lower() if found else ""


def _plain(word: str) -> str:
    return word.lower().replace("’", "'")


def _typed(word: str, model: str) -> str:
    """With the apostrophe of ``model``."""
    return word.replace("'", "’") if "’" in model else word


def _short(short: str, verb: str, source: str) -> str:
    if source == "neither":
        return "'s" if short in ("'re", "'ve") else short
    if short == "'s":
        return "'ve" if verb in _DONE or (verb.endswith("ed") and verb not in _STATES) else "'re"
    return short


def _agree(verb: str, source: str, *, known: bool = False) -> str:
    """The verb after a subject that changed its number. ``known``: change only verbs of the lists."""
    if source == "neither":
        if verb in _PLURAL_TO_SINGULAR:
            return _PLURAL_TO_SINGULAR[verb]
        if verb not in _BASE_VERBS:
            return verb
        if verb.endswith(("ch", "sh", "s", "x", "z", "o")):
            return verb + "es"
        return re.sub(r"([^aeiou])y$", r"\1ie", verb) + "s"
    if verb in _SINGULAR_TO_PLURAL:
        return _SINGULAR_TO_PLURAL[verb]
    return _plural_form(verb, known)


def _plural_form(verb: str, known: bool) -> str:
    if not verb.endswith("s"):
        return verb
    stems = [verb[:-1], verb.removesuffix("es"), verb.removesuffix("ies") + "y"]
    found: Sequence[str] = [stem for stem in stems if stem in _BASE_VERBS]
    if found or known or verb in _NO_VERBS:
        return found[0] if found else verb
    if re.search(r"[^aeiou]ies$", verb) and len(verb) > 4:
        return verb[:-3] + "y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zzes", "oes")):
        return verb[:-2]
    return verb[:-1] if not verb.endswith(("ss", "us", "is", "'s")) and len(verb) > 3 else verb
