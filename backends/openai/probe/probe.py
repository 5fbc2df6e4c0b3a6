"""Finding out by experiment what a server can do, and whether its numbers are true.

Each number is asked for by two independent routes where there are two. What fails its experiment
is not used; what cannot be tried is reported as not tried.
"""

from __future__ import annotations

from backends.openai.api import ServerApi
from backends.openai.probe import chats as probe_chats
from backends.openai.probe import lists as probe_lists
from backends.openai.probe import options as probe_options
from backends.openai.probe import sequences as probe_sequences
from backends.openai.probe.capabilities import Check, ServerCapabilities
from backends.openai.probe.session import ProbeSession
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs


async def probe(
    api: ServerApi, *, samples: int | None
) -> tuple[ServerCapabilities, tuple[Check, ...], RemoteTokenizer | None]:
    """Make all experiments on one server; ``samples`` allows counted answers where nothing else is left.

    Leaves ``api`` asking as the findings say. Raises `BackendError` when the server cannot be
    reached or refuses the key.
    """
    book = ProbeSession(api)
    first = await probe_lists.completions(book)
    if book.found.completions:
        await probe_options.tokenizer(book)
    if isinstance(first, TopLogprobs):
        await probe_lists.longest_list(book)
        await probe_lists.own_spread(book)
        await probe_lists.temperature(book, first)
        await probe_lists.token_ids(book)
        await probe_options.logit_bias(book)
        await probe_options.chosen_tokens(book)
        await probe_options.several_prompts(book)
        await probe_sequences.text_route(book)
    in_chat = await probe_chats.chat_lists(book)
    if book.found.chat:
        await probe_chats.chat_route(book, in_chat)
    if book.found.completions or book.found.chat:
        await probe_options.model_name(book)
        await probe_options.seed(book)
        await probe_options.several_choices(book)
    await probe_options.key(book)
    book.note_values()
    numbered = api.seen.distinct >= 4 and api.seen.distinct >= api.usage.requests // 2
    book.learn(answers_numbered=numbered, answered_model=api.seen.model)
    if samples and book.found.completions and book.found.text_route is None:
        book.learn(text_route="sampled")
    if samples and book.found.chat and book.found.chat_route is None:
        book.learn(chat_route="sampled")
    return book.found, tuple(book.checks), book.tokenizer
