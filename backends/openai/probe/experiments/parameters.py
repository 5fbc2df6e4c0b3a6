"""Experiments with the parameters that a chat model accepts: what is refused is left out from then on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, get_args

from backends.base import Message
from backends.errors import BackendError
from backends.http.usage import reasoning_tokens
from backends.openai.probe.report import PARAMETERS
from backends.openai.probe.session import Outcome, ProbeSession, experiment
from backends.openai.protocol.api import single_choice
from backends.openai.protocol.parameters import ZERO_TEMPERATURE, LimitName
from backends.reading.reasoning import has_reasoned, is_opened_before

_ASKED = (Message("user", "Is the sky blue? Answer yes or no."),)
_WITH_SYSTEM = (Message("system", "Answer with one word."), *_ASKED)
#: Token limit of the answers: enough for a little reasoning.
_ROOM = 1024
#: Sampling parameters in the order in which they are tried, each together with those accepted before it, since some
#: models accept either a temperature or ``top_p``.
_TRIED: tuple[tuple[str, Any], ...] = (("temperature", 0.0), ("top_p", 1.0), ("seed", 7), ("stop", ["\n\n\n"]))
#: A refusal of the model, not of the path.
_NAMES_MODEL = re.compile(r"model|deployment", re.I)
#: Permanent refusals of a request. Some gateways report them as if the key or the path were wrong.
_REFUSALS = ("bad_request", "unsupported", "auth", "not_found")


@experiment(PARAMETERS)
async def chat_parameters(session: ProbeSession) -> Outcome:
    """Which parameters chats accept, one by one; and whether the model reasons before it answers."""
    first = await _plainest(session)
    if isinstance(first, BackendError):
        of_texts = session.unanswered
        told = of_texts is not None and (of_texts.kind == "malformed" or _NAMES_MODEL.search(of_texts.message))
        if first.kind != "not_found" or not told:  # no route for chats says less than what was wrong with texts
            session.unanswered = first
        return Outcome(None, str(first))
    taken: dict[str, Any] = {}
    refused: dict[str, BackendError] = {}
    everything = await _ask(session, _ASKED, dict(_TRIED))
    for name, value in _TRIED if isinstance(everything, BackendError) else ():
        answer = await _ask(session, _ASKED, {**taken, name: value})
        if _is_refused(answer) and name == "temperature" and await _takes_some(session):
            refused[ZERO_TEMPERATURE], taken[name] = answer, 1.0
        elif _is_refused(answer):
            refused[name] = answer
        else:
            taken[name] = value
    with_system = await _ask(session, _WITH_SYSTEM, {})
    if _is_refused(with_system):
        refused["system"] = with_system
    session.api.parameters.refused = tuple(refused)
    if "temperature" in refused:
        session.statements.append(
            "the model accepts no temperature: every text is sampled at its default, even a greedy one"
        )
    if ZERO_TEMPERATURE in refused:
        session.statements.append("the model accepts no temperature of 0: a greedy text is sampled at its default")
    if "top_p" in refused:
        session.statements.append("the model accepts no top_p of 1: texts and draws are sampled with its default")
    if "system" in refused:
        session.statements.append("the model accepts no system message: it is prepended to the next user turn")
    answered = [one for one in (first, everything, with_system) if not isinstance(one, BackendError)]
    opened = any(is_opened_before(_choice(one)) for one in answered)
    # Some models think before some answers only.
    reasons = opened or any(has_reasoned(_choice(one)) or reasoning_tokens(one.get("usage")) > 0 for one in answered)
    parts = [f"refused: {', '.join(refused)}" if refused else "all are accepted"]
    parts += ["the limit is max_completion_tokens"] * (session.api.parameters.limit != "max_tokens")
    parts += ["it reasons before it answers"] * reasons
    limit, responses = session.api.parameters.limit, session.api.parameters.responses
    parts += ["it is asked by the Responses API"] * responses
    if reasons:
        session.api.parameters.extra_tokens = session.api.extras.extra_tokens
    found = {"refused": tuple(refused), "limit_name": limit, "reasons": reasons, "opened_before": opened}
    found["responses"] = responses
    return Outcome(None, "; ".join(parts), chat=True, **found)


def _is_refused(answer: object) -> TypeGuard[BackendError]:
    return isinstance(answer, BackendError) and answer.kind in _REFUSALS


async def _takes_some(session: ProbeSession) -> bool:
    """Whether a model that refuses temperature 0 takes others: 1 is then sent, since its default may be another.

    Where 1 is the only one, as for OpenAI's o and gpt-5 series, it is the default, and none is sent.
    """
    for value in (1.0, 0.7):
        if _is_refused(await _ask(session, _ASKED, {"temperature": value})):
            return False
    return True


async def _plainest(session: ProbeSession) -> dict[str, Any] | BackendError:
    """The answer to a chat with nothing but its turns and a limit, under either of the limit's names, or a response."""
    first: BackendError | None = None
    for name in get_args(LimitName):
        session.api.parameters.limit = name
        answer = await _ask(session, _ASKED, {})
        if not isinstance(answer, BackendError):
            return answer
        first = first or answer
        if answer.kind == "auth":  # the key is refused, so another name of the limit cannot help
            break
    session.api.parameters.limit = "max_tokens"
    assert first is not None
    if _is_refused(first) and first.kind != "auth" and not session.capabilities.completions:
        session.api.parameters.responses = True  # perhaps the server's only endpoint, or the model's
        answer = await _ask(session, _ASKED, {})
        if not isinstance(answer, BackendError):
            return answer
        session.api.parameters.responses = False
    return first


async def _ask(
    session: ProbeSession, turns: Sequence[Message], options: dict[str, Any]
) -> dict[str, Any] | BackendError:
    return await session.ask(session.api.chat, turns, max_tokens=_ROOM, **options)


def _choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return single_choice(response)
    except BackendError:
        return {}
