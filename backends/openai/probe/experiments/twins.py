"""Nearly identical prompts, long prompts and token counts: they reveal caches and truncated prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from backends.base import Message
from backends.errors import BackendError
from backends.openai.probe.session import Kind, NotTestedError, Outcome, ProbeSession, experiment
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

Asked = TypeVar("Asked", str, tuple[Message, ...])

_BASE = "Yesterday Anna told Ben that the nurse had found 17 letters in the old house. Who found them?\nThe answer is"
#: What differs, and the prompt. The others are compared with the first.
_TWINS = (
    ("", _BASE),
    ("the first word", _BASE.replace("Yesterday", "Tomorrow")),
    ("a name", _BASE.replace("Anna", "Clara")),
    ("a word in the middle", _BASE.replace("nurse", "pilot")),
    ("the last word", _BASE.removesuffix("is") + "was"),
    ("the order of two names", _BASE.replace("Anna told Ben", "Ben told Anna")),
    ("a number", _BASE.replace("17", "71")),
    ("capital letters", _BASE.lower()),
    ("punctuation", _BASE.replace(".", "!")),
    ("a line break", _BASE.replace("\n", " ")),
)
_STORY = " ".join(
    f"In the {time} of the {day} day the {who} went to the {where} and told nobody the password."
    for time, day, who, where in (
        ("morning", "first", "doctor", "river"), ("evening", "second", "baker", "garden"),
        ("morning", "third", "farmer", "mountain"), ("evening", "fourth", "pilot", "city"),
        ("morning", "fifth", "painter", "window"), ("evening", "sixth", "teacher", "country"),
        ("morning", "seventh", "tailor", "house"), ("evening", "eighth", "driver", "table"),
        ("morning", "ninth", "mason", "door"), ("evening", "tenth", "clerk", "meeting"),
    )
)  # fmt: skip
_LONG = f"The password is apple. {_STORY} Now they ask: which word was it? The password is"
_LONG_TWINS = (
    ("", _LONG),
    ("the start of a long prompt", _LONG.replace("apple", "stone")),
    ("the middle of a long prompt", _LONG.replace("fifth day the painter", "fifth day the cashier")),
    ("the later part of a long prompt", _LONG.replace("eighth day the driver", "eighth day the cashier")),
    ("the end of a long prompt", _LONG.replace("Now they ask", "Now we ask")),
)
_QUOTED = 'Müller asked Weiß.\n\nHe said "no" to the'
#: Prompts that become the same if a gateway rewrites characters.
_WRITTEN = (
    ("", _QUOTED),
    ("an accented letter", _QUOTED.replace("Mü", "Mö")),
    ("an accented letter and a plain one", _QUOTED.replace("Mü", "Mu")),
    ("a quotation mark and its name in HTML", _QUOTED.replace('"', "&quot;")),
    ("one line break or two", _QUOTED.replace("\n\n", "\n")),
    ("a line break and its escape", _QUOTED.replace("\n", "\\n")),
)
_SYMBOLS = "“It’s late” – she said 😀. He"
#: Prompts that become the same if a gateway replaces typographic characters by plain ones, or drops symbols.
_PLAIN = (
    ("", _SYMBOLS),
    ("curly quotes and straight ones", _SYMBOLS.translate(str.maketrans("“”’", '""\''))),
    ("a dash and a hyphen", _SYMBOLS.replace("–", "-")),
    ("an emoji", _SYMBOLS.replace("😀", "😢")),
)
_FAMILIES = (_TWINS, _LONG_TWINS, _WRITTEN, _PLAIN)
#: For texts only: in chats an honest template may strip the line break.
_LAST_BREAK = (
    ("", "Who found the letter? The answer:"),
    ("a line break at the end", "Who found the letter? The answer:\n"),
)
_ASKED = Message("user", "Picture a friend. Is it a man or a woman? Answer with one word.")
_QUESTION, _ANSWER = (
    Message("user", "I have a friend. Her name is Anna."),
    Message("assistant", "Anna is a good friend."),
)
#: Chats that differ only before their last question. Some models accept no system message.
_SYSTEMS = (
    ("", (Message("system", "You are a kind teacher. Answer with one word in English."), _ASKED)),
    ("the system message", (Message("system", "You are a strong baker. Answer with a number only."), _ASKED)),
)
_EARLIER = (
    ("", (_QUESTION, _ANSWER, _ASKED)),
    ("an earlier question", (Message("user", "I have a friend. His name is David."), _ANSWER, _ASKED)),
    ("an earlier answer", (_QUESTION, Message("assistant", "Tomorrow the river is cold."), _ASKED)),
)
_TALK = (
    *(Message("user", "The password is apple. Keep it."), Message("assistant", "Good.")),
    *(Message("user", "Anna went to the river."), Message("assistant", "That was early in the morning.")),
    *(Message("user", "Ben went to the garden."), Message("assistant", "He was happy there.")),
    *(Message("user", "The teacher found a letter."), Message("assistant", "It was from the nurse.")),
    *(Message("user", "The baker sold bread."), Message("assistant", "People bought all of it.")),
    Message("user", "Which word is the password? Answer with one word."),
)
#: A chat of many turns: some gateways only keep the last ones.
_LONG_TALK = (
    ("", _TALK),
    ("the first of many turns", (Message("user", "The password is stone. Keep it."), *_TALK[1:])),
    ("a turn in the middle", (*_TALK[:5], Message("assistant", "She was alone in the city."), *_TALK[6:])),
)
#: Nats within which two lists count as the same, and the most that noise may add: in a long prompt, one word changes
#: little more than that.
_SAME, _MOST_NOISE = 1e-3, 0.02
#: Different values that a list must have to be like no other by chance. Of shorter ones, those of two prompts may agree
#: within that tolerance, and always do where the model is sure of its answer: below the last, in nats.
LEAST_VALUES, _SURE = 5, -0.02
#: Before both prompts of a pair whose short lists agree. Those of one answer agree here too.
_PREFACES = ("It was late in the evening. ", "My old friend told me this. ")
#: Minimum tokens counted per word of a long text, and maximum tokens counted for a text beyond those sent.
_LEAST_COUNTED, _MOST_UNSENT = 0.8, 3
_SENTENCE = "The nurse told the pilot about the old house by the river."


@experiment("near twins of texts")
async def text_twins(session: ProbeSession) -> Outcome:
    """Whether texts that differ in one place have different lists."""
    k = min(session.capabilities.largest_k, 100)
    found = await _compared(session, lambda text: session.next_tokens(text, k), (*_FAMILIES, _LAST_BREAK))
    return _outcome(session, "text", found)


@experiment("near twins of chats")
async def chat_twins(session: ProbeSession) -> Outcome:
    """Whether questions that differ in one place have different lists."""
    k = session.capabilities.largest_chat_k
    found = await _compared(session, lambda text: session.next_chat_tokens((Message("user", text),), k), _FAMILIES)
    return _outcome(session, "chat", found)


@experiment("turns of chats")
async def turn_twins(session: ProbeSession) -> Outcome:
    """Whether chats that differ in their system message or an earlier turn have different lists."""
    k = session.capabilities.largest_chat_k
    found = await _compared(session, lambda turns: session.next_chat_tokens(turns, k), (_SYSTEMS, _EARLIER, _LONG_TALK))
    return _outcome(session, "chat", found)


@dataclass
class _Compared:
    """The differences that do not change the list, and how many prompts were compared with the first of their family.

    ``unclear`` more have short lists of a sure model, which would be alike anyway.
    """

    alike: list[str] = field(default_factory=list)
    compared: int = 0
    unclear: int = 0


async def _compared(
    session: ProbeSession,
    ask: Callable[[Asked], Awaitable[TopLogprobs | BackendError]],
    families: Sequence[Sequence[tuple[str, Asked]]],
) -> _Compared:
    """Compare each prompt of a family with its first. Refused ones are ignored: they get no wrong score."""
    found = _Compared()
    for family in families:
        tops: list[tuple[str, Asked, TopLogprobs]] = []
        for difference, prompt in family:
            if isinstance(top := await ask(prompt), TopLogprobs):
                tops.append((difference, prompt, top))
        for difference, prompt, top in tops[1:]:
            _, base, first = tops[0]
            if not _tells(first) and not _tells(top):
                found.unclear += 1
                continue
            found.compared += 1
            if same_lists(session, first, top) and (
                has_values(first) or await _alike_again(session, ask, base, prompt)
            ):
                found.alike.append(difference)
    return found


async def _alike_again(
    session: ProbeSession, ask: Callable[[Asked], Awaitable[TopLogprobs | BackendError]], base: Asked, prompt: Asked
) -> bool:
    """Whether two prompts have the same list behind every preface too."""
    for preface in _PREFACES:
        tops = [await ask(_behind(preface, one)) for one in (base, prompt)]
        if all(isinstance(top, TopLogprobs) for top in tops) and not same_lists(session, *tops):  # type: ignore[arg-type]
            return False
    return True


def _behind(preface: str, prompt: Asked) -> Asked:
    """The prompt with this before its text, or before that of its last turn."""
    if isinstance(prompt, str):
        return preface + prompt
    *turns, last = prompt
    return (*turns, replace(last, content=preface + last.content))


def _outcome(session: ProbeSession, kind: Kind, found: _Compared) -> Outcome:
    if not found.compared and not found.unclear:
        raise NotTestedError("not tried: the server gives no lists of these")
    reason = ""
    if found.alike:
        differences = ", ".join(found.alike)
        reason = f"prompts that differ by {differences} get one answer: from a cache, or of a part of the prompt"
    elif found.unclear > found.compared:
        reason = "lists of so few tokens, nearly certain after most prompts, do not show which prompt was read"
    if reason:
        session.distrust(kind, reason)
        return Outcome(False, reason)
    return Outcome(True, f"{found.compared} prompts that differ in one place get another list each")


def has_values(top: TopLogprobs) -> bool:
    """Whether the list is long enough to be like no other by chance."""
    return len({token.logprob for token in top.tokens}) >= LEAST_VALUES


def _tells(top: TopLogprobs) -> bool:
    """Whether the list would be another one after another prompt."""
    return has_values(top) or min(token.logprob for token in top.tokens) < _SURE


def same_lists(session: ProbeSession, a: TopLogprobs, b: TopLogprobs) -> bool:
    """Whether two lists hold the same tokens with the same values; rare tokens count as much as others."""
    allowed = max(_SAME, min(2 * session.capabilities.repeat_noise, _MOST_NOISE))
    values_a, values_b = _values(a.tokens), _values(b.tokens)
    common = values_a.keys() & values_b.keys()
    if len(common) < 0.9 * max(len(values_a), len(values_b)):
        return False
    return max(abs(values_a[key] - values_b[key]) for key in common) <= allowed


def _values(tokens: Sequence[ListedToken]) -> dict[object, float]:
    return {t.token_id if t.token_id is not None else (t.data or t.text): t.logprob for t in tokens}


@experiment("token counts of texts")
async def text_lengths(session: ProbeSession) -> Outcome:
    """Whether the server counts the text's own tokens: none left out, and at most a few added."""
    return await _lengths(session, "text")


@experiment("token counts of chats")
async def chat_lengths(session: ProbeSession) -> Outcome:
    """Whether a long question is counted in full. A template adds an unknown number of tokens."""
    return await _lengths(session, "chat")


async def _lengths(session: ProbeSession, kind: Kind) -> Outcome:
    once, twice, long = [await _tokens(session, kind, text) for text in (_SENTENCE, f"{_SENTENCE} {_SENTENCE}", _LONG)]
    words = len(_LONG.split())
    if not once or not twice or not long:
        return Outcome(None, "none reported")
    message = f"{once} and {twice} for a sentence and two, {long} for {words} words"
    unsent = 2 * once - twice
    if long < _LEAST_COUNTED * words or twice <= once:
        session.distrust(kind, f"a prompt of {words} words is counted as {long} tokens: it was cut")
        return Outcome(False, message)
    if kind == "text" and unsent > _MOST_UNSENT:
        session.distrust(kind, f"{unsent} tokens are counted that were not sent: there is a hidden text")
        return Outcome(False, message)
    if kind == "chat":
        session.unsent_tokens = unsent
    return Outcome(True, message)


async def _tokens(session: ProbeSession, kind: Kind, text: str) -> int:
    """Tokens that the server counts for one prompt; 0 if it reports none."""
    before = session.api.usage.prompt_tokens
    if kind == "text":
        await session.ask(session.api.completion, await session.as_sent(text), max_tokens=1, temperature=0.0)
    else:
        await session.ask(session.api.chat, (Message("user", text),), max_tokens=1, temperature=0.0)
    return session.api.usage.prompt_tokens - before
