"""Log-probabilities of a text's tokens, compared with the lists after the same text; if they disagree, draws decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backends.errors import BackendError
from backends.openai.probe.experiments.draws import DECIDED, drawn, settle
from backends.openai.probe.session import NotTestedError, Outcome, ProbeSession

#: (text before, token, its log-probability)
Row = tuple[str, str, float]
#: Predictable texts: a short list holds their tokens, and a shifted row is obvious.
SEQUENCES = ("Monday, Tuesday, Wednesday, Thursday", "Paris is the capital of France, Rome is the capital of Italy")
#: Some 180 tokens of few distinct words, and the same with another first word: rows that ignore it do not change.
_TOLD = " ".join(
    f"On {day} {who} told {whom}." + f" {SEQUENCES[0]}." * (day == "Wednesday")
    for day, who, whom in zip(
        ("Friday", "Monday", "Sunday", "Tuesday", "Thursday", "Saturday", "Wednesday") * 3,
        ("Anna", "Ben", "Clara", "Ben", "Anna") * 6, ("David", "Clara", "Anna") * 10, strict=False,
    )
)  # fmt: skip
STORY = f"The password is apple. {_TOLD} The password is apple"
#: Draws that are compared with the value they decided for, and the probability below which they do not fit it.
_N_FITTED, _UNFIT = 1000, 1e-3
#: Parts of the long text, as shares of its rows.
ZONES = ((0.3, 0.5), (0.5, 0.75), (0.75, 1.0))


@dataclass
class RowsCompared:
    """How far rows are from the lists after the same text, in nats, and where the probabilities differ most."""

    compared: int = 0
    diff: float = 0.0
    farthest: tuple[float, str, str, float, float] | None = None

    async def compare(self, session: ProbeSession, rows: Sequence[Row]) -> None:
        """Add these rows, as far as the list identifies their tokens."""
        for before, token, value in rows:
            k = min(session.capabilities.largest_k, 1000)
            top = session.lists_after.get(before) or await session.next_tokens(before, k)
            if isinstance(top, BackendError):
                continue
            session.lists_after[before] = top
            entries = top.by_bytes(token.encode())
            if len(entries) == 1 and top.identifies(entries[0]):
                self.compared += 1
                listed = entries[0].logprob
                self.diff = max(self.diff, abs(listed - value))
                apart = abs(math.exp(listed) - math.exp(value))
                self.farthest = max(self.farthest or (-1.0, "", "", 0.0, 0.0), (apart, before, token, listed, value))


def when_repeated(session: ProbeSession, message: str, noise: float | BackendError, diff: float) -> Outcome:
    """The outcome for a route that is ``diff`` nats from the lists, and moves by ``noise`` when it is asked again."""
    if isinstance(noise, BackendError):
        return Outcome(False, f"{message}; failed when repeated: {noise}")
    message = f"{message}; by {noise:.2g} when repeated"
    if noise > session.tolerance():
        return Outcome(False, message)
    return Outcome(True, message, repeat_noise=max(session.capabilities.repeat_noise, noise, diff))


async def refuted(session: ProbeSession, route: str, found: RowsCompared, what: str) -> str:
    """The message for rows that disagree with the lists."""
    assert found.farthest is not None
    verdict = await _settled(session, route, found.diff, found.farthest)
    return f"differs by {found.diff:.2g} nats from asking token by token, over {found.compared} {what}; {verdict}"


async def _confirmed(session: ProbeSession, before: str, token: str, listed: float) -> bool:
    """Whether further draws fit the listed value, where they are cheap: the nearer of two values may be false too."""
    if session.capabilities.together is None:
        return True
    from scipy.stats import binomtest

    texts = await drawn(session, before, _N_FITTED)
    return float(binomtest(texts.count(token), len(texts), math.exp(listed)).pvalue) >= _UNFIT


async def _settled(
    session: ProbeSession, route: str, diff: float, farthest: tuple[float, str, str, float, float]
) -> str:
    """Let draws decide between the lists and another route, at the token where they differ most."""
    _, before, token, listed, value = farthest
    try:
        evidence, n = await settle(session, before, token, listed, value)
    except NotTestedError as reason:
        evidence, n = 0.0, 0
        session.distrust("text", f"{route} is {diff:.2g} nats from its lists, and {reason}")
    if evidence >= DECIDED and not await _confirmed(session, before, token, listed):
        session.distrust("text", f"{route} is {diff:.2g} nats from its lists, and draws fit neither")
        return "draws fit neither"
    if evidence >= DECIDED:
        session.statements.append(
            f"{route} is up to {diff:.2g} nats from its lists. {n} draws after {before[-30:]!r} decided for the lists, "
            f"at odds of more than 1000 to 1; {route} is not used"
        )
        return f"{n} draws decided for the lists"
    verdict = "decided against the lists" if evidence <= -DECIDED else "did not decide"
    session.distrust("text", f"{route} is {diff:.2g} nats from its lists, and {n} draws {verdict}")
    return f"{n} draws {verdict}"
