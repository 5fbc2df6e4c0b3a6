"""Lies by name: those of real servers and gateways, and others that are as large."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import numpy as np

from tests.backends.openai.lies.transformations import (
    CUT,
    LISTED,
    SYSTEM,
    Told,
    another_model,
    another_throughout,
    cached,
    cached_draws,
    chats_of,
    first_words,
    greedy,
    hears,
    last_words,
    lists,
    lists_of_another,
    named,
    names_shifted,
    normalised,
    previous_answer,
    reads,
    redrawn,
    renormalised,
    said,
    semantic_cache,
    spaces_lost,
    tail_of_one_value,
    thinks_first,
    top_40,
    top_p_90,
    without_accents,
)
from tests.backends.openai.lies.word_model import tokens_of

LIES: Mapping[str, Told] = {
    "semantic cache": semantic_cache,
    "cache by the first 12 characters": cached(lambda asked: first_words(asked)[:12]),
    "cache by the last 12 characters": cached(lambda asked: last_words(asked)[-12:]),
    "cache without case": cached(lambda asked: asked.text.lower(), LISTED),
    "cache without digits": cached(lambda asked: re.sub(r"\d", "", asked.text), LISTED),
    "cache without word order": cached(lambda asked: tuple(sorted(tokens_of(asked.text))), LISTED),
    "cache without punctuation": cached(lambda asked: re.sub(r"[^\w ]", "", asked.text), LISTED),
    "cache by length": cached(lambda asked: len(asked.tokens), LISTED),
    "cache by 64 characters": cached(lambda asked: first_words(asked)[:64], LISTED),
    "prompt cut to its last 100 tokens": hears(lambda tokens: tokens[-CUT:]),
    "prompt cut to its first 60 tokens": hears(lambda tokens: tokens[:60], LISTED),
    "prompt cut in the middle": hears(
        lambda tokens: tokens if len(tokens) < 80 else (*tokens[:40], *tokens[-40:]), LISTED, honest_usage=False
    ),
    "prompt in lower case": reads(str.lower),
    "prompt without line breaks": reads(lambda text: text.replace("\n", " ")),
    "question marks for other characters": reads(lambda text: text.encode("ascii", "replace").decode()),
    "two line breaks as one": reads(lambda text: re.sub("\n\n+", "\n", text)),
    "trailing line break stripped": reads(lambda text: text.rstrip("\n"), ("lists", "whole")),
    "quotation marks as HTML": reads(lambda text: text.replace('"', "&quot;")),
    "UTF-8 read as Latin-1": reads(lambda text: text.encode().decode("latin-1")),
    "all of HTML escaped": reads(html.escape),
    "curly quotes made straight": reads(lambda text: text.translate(str.maketrans("“”‘’", "\"\"''"))),
    "emoji dropped": reads(lambda text: re.sub("[\U0001f300-\U0001faff]", "", text)),
    "letters without accents": reads(without_accents),
    "ampersands as words": reads(lambda text: text.replace("&", "and")),
    "line breaks as their escape": reads(lambda text: text.replace("\n", "\\n")),
    "system messages dropped": chats_of(lambda turns: [turn for turn in turns if turn["role"] != "system"]),
    "last turn alone": chats_of(lambda turns: turns[-1:]),
    "logarithms to base 2": lists(lambda values: values / np.log(2)),
    "logarithms to base 10": lists(lambda values: values / np.log(10)),
    "temperature 0.7 in lists": lists(lambda values: normalised(values / 0.7)),
    "temperature 1.5 in lists": lists(lambda values: normalised(values / 1.5)),
    "renormalised over the k listed": named(renormalised, ("lists", "chat")),
    "top-40 in lists": lists(top_40),
    "top-p 0.9 in lists": lists(top_p_90),
    "names shifted below rank 1": named(names_shifted),
    "values below the likeliest": lists(lambda values: values - values.max()),
    "values rounded to 0.5": lists(lambda values: np.round(2 * values) / 2, LISTED),
    "-100 as unknown": named(tail_of_one_value(-100.0)),
    "<think> before the answer": said(thinks_first, ("chat",)),
    "leading spaces lost": said(spaces_lost, ("lists", "whole")),
    "lists of another model": lambda random: lists_of_another(random),
    "draws at temperature 0.7": redrawn(lambda values, t: values / (0.7 * t or 1e-3), LISTED),
    "5 % previous answers": previous_answer,
    "another model for requests 100 to 350": another_model(lambda asked, _: 100 <= asked.number < 350),
    "another model for 10 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.1),
    "another model for 2 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.02),
    "another model from the start": lambda random: another_throughout(random),
    "hidden system prompt": hears(lambda tokens: (*tokens[:1], *SYSTEM, *tokens[1:])),
    "echo of another model": lambda random: lists_of_another(random, ("echo", "ids"), ("echo", "prompt_logprobs")),
    "cached draws, same id": cached_draws(fresh_ids=False),
    "cached draws, fresh ids": cached_draws(fresh_ids=True),
    "greedy draws": redrawn(greedy),
    "draws at temperature 0.3": redrawn(lambda values, t: values / 0.3 if t else greedy(values, t)),
}
#: Lies that begin after the look: they are told to more questions.
UNDER_WAY = frozenset(name for name in LIES if re.search("after the probe|requests 100 to 350|previous", name))
