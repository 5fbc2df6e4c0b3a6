"""Tests empirically what a server can do, and whether its numbers are true.

Each number is obtained by two independent routes if there are two. What fails its experiment is not used; what cannot
be tested is reported as not tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.openai.probe.experiments import (
    addresses,
    chats,
    copying,
    draws,
    features,
    lists,
    longer_answers,
    sequences,
    twins,
    unlikely,
)
from backends.openai.probe.report import CanaryValue, ProbeReport, Watched
from backends.openai.probe.session import Experiment, Kind, ProbeSession
from backends.openai.protocol.api import ServerApi

_OF_LISTS = (
    lists.longest_list,
    lists.leading_spaces,
    lists.repeat_noise,
    lists.temperature,
    lists.listed_ids,
    lists.token_ids,
    lists.without_bos,
    features.logit_bias,
    features.several_prompts,
)
#: These prove the lists, the cheapest first; once they are not trusted, the others are not tried.
_PROOFS_OF_TEXTS = (
    longer_answers.longer_texts,
    twins.text_twins,
    twins.text_lengths,
    copying.text_copies,
    lists.text_capitals,
    draws.text_draws,
    sequences.text_route,
)
_PROOFS_OF_CHATS = (
    longer_answers.longer_chats,
    twins.chat_twins,
    twins.turn_twins,
    twins.chat_lengths,
    copying.chat_copies,
    lists.chat_capitals,
    draws.chat_draws,
)


async def probe(api: ServerApi, *, samples: int | None) -> ProbeSession:
    """Run all experiments on one server; ``samples`` allows counted draws if no other route is proven.

    Leaves ``api`` configured with the proven capabilities. Raises `BackendError` if the server cannot
    be reached, refuses the key, or answers neither texts nor chats.
    """
    session = ProbeSession(api)
    await lists.next_token_lists(session)
    if session.capabilities.completions:
        await features.tokenizer(session)
        await _drawing(session)
    if session.tokenizer is not None:
        await features.token_counts(session)
    if session.text_list is not None:
        for experiment in _OF_LISTS:
            await experiment(session)
        await _proven(session, "text", _PROOFS_OF_TEXTS)
        await _proven(session, "text", (unlikely.unlikely_values, lists.lists_at_the_end))
    if "text" in session.untrusted:
        session.update(text_route=None)
    await _chats(session)
    await features.check_key(session)
    if not session.capabilities.completions and not session.capabilities.chat:
        raise await addresses.unanswered(session)
    await features.model_name(session)
    await features.several_choices(session)
    session.record_values()
    distinct = api.response_ids.distinct
    unique = distinct >= 4 and distinct >= api.usage.requests // 2
    named = api.response_ids
    session.update(unique_response_ids=unique, answered_model=named.model, answered_provider=named.provider)
    found = session.capabilities
    if samples and session.text_list is None and session.chat_list is None and (found.completions or found.chat):
        await draws.variety(session)
    if samples and found.completions and found.text_route is None and "text" not in session.untrusted:
        session.update(text_route="sampled")
    if samples and found.chat and found.chat_route is None and not session.untrusted:
        session.update(chat_route="sampled")
    await draws.draws_beside_lists(session)
    session.statements += [f"no score of a {kind} is used: {reason}" for kind, reason in session.untrusted.items()]
    api.configure(session.capabilities)
    return session


def report_of(
    session: ProbeSession, requests: int, canary: Sequence[CanaryValue], identity: str, watched: Sequence[Watched]
) -> ProbeReport:
    """The report of a finished probe that took so many requests, with the canary and the questions to watch."""
    api = session.api
    return ProbeReport(
        api.client.base_url,
        api.model,
        session.capabilities,
        tuple(session.checks),
        tuple(canary),
        identity,
        requests,
        statements=tuple(session.statements),
        watched=tuple(watched),
        limits=tuple(session.unknowable()),
        without_scores=session.without_scores(),
    )


async def _drawing(session: ProbeSession) -> None:
    """How texts are sampled, on which every set of draws depends."""
    await features.seed(session)
    await draws.draws_together(session)


async def _proven(session: ProbeSession, kind: Kind, experiments: Sequence[Experiment]) -> None:
    for experiment in experiments:
        if kind not in session.untrusted:
            await experiment(session)


async def _chats(session: ProbeSession) -> None:
    await chats.chat_lists(session)
    if session.capabilities.chat and not session.capabilities.completions:
        await _drawing(session)
    if session.chat_list is not None:
        await chats.chat_noise(session)
    if session.capabilities.chat:
        await chats.chat_route(session)
    # A chat that is scored as its rendered text needs no proof of its own.
    if session.capabilities.chat_route in ("chat_prefill", "chat_first"):
        await chats.chat_temperature(session)
        await _proven(session, "chat", _PROOFS_OF_CHATS)
    if "chat" in session.untrusted:
        session.update(chat_route=None)
