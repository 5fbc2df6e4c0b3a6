"""Lies by name: those of the first table, and those thought up here."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import numpy as np

from tests.backends.openai.lies.transformations import (
    CUT,
    LISTED,
    OWN,
    SCORED,
    SYSTEM,
    Told,
    after_the_answers_start,
    another_model,
    another_throughout,
    audited_word_down,
    audited_words_alike,
    audited_words_swapped,
    bias_that_stays,
    bos_doubled_on_texts,
    cached,
    cached_draws,
    chats_of,
    chosen_from_a_cache,
    cold_but_alone,
    drawn_beside_lists,
    draws_copied,
    each_word_rounded,
    filtered_alike,
    first_words,
    greedy,
    hears,
    hears_where_chosen,
    hot_rows,
    hot_where,
    ids_shifted,
    in_lower_case,
    jittered,
    last_words,
    left_out,
    likeliest_gender,
    lists,
    lists_of_another,
    named,
    names_by_alphabet,
    names_shifted,
    normalised,
    of_three_decimals,
    one_choice_for_all,
    previous_answer,
    quantised_twin,
    ranks,
    reads,
    redrawn,
    refusal,
    renormalised,
    rounded_by_itself,
    rows_below,
    rows_of,
    said,
    semantic_cache,
    spaces_lost,
    swapped_where_chosen,
    tail_of_one_value,
    tail_shuffled,
    tail_up,
    thinks_first,
    top_40,
    top_p_90,
    where_chosen,
    without_accents,
    womens_words,
)
from tests.backends.openai.lies.word_model import tokens_of

#: The table that this laboratory began with.
FIRST: Mapping[str, Told] = {
    "BOS doubled on texts, not on ids": bos_doubled_on_texts,
    "semantic cache": semantic_cache,
    "cache by the first 12 characters": cached(lambda asked: first_words(asked)[:12]),
    "cache by the last 12 characters": cached(lambda asked: last_words(asked)[-12:]),
    "5 % previous answers": previous_answer,
    "canned refusal": said(refusal, LISTED),
    "prompt cut to its last 100 tokens": hears(lambda tokens: tokens[-CUT:]),
    "logarithms to base 2": lists(lambda values: values / np.log(2)),
    "temperature 0.7 in lists": lists(lambda values: normalised(values / 0.7)),
    "temperature 1.5 in lists": lists(lambda values: normalised(values / 1.5)),
    "renormalised over the k listed": named(renormalised, ("lists", "chat")),
    "top-40 in lists": lists(top_40),
    "top-p 0.9 in lists": lists(top_p_90),
    "names shifted below rank 1": named(names_shifted),
    "<think> before the answer": said(thinks_first, ("chat",)),
    "hidden system prompt": hears(lambda tokens: (*tokens[:1], *SYSTEM, *tokens[1:])),
    "another model for requests 100 to 350": another_model(lambda asked, _: 100 <= asked.number < 350),
    "another model for 10 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.1),
    "another model for 2 % after the probe": another_model(lambda a, r: a.probed and r.random() < 0.02),
    "another model at 6 in flight": another_model(lambda asked, _: asked.under_way >= 6),
    "another model but for the canary": another_model(
        lambda a, _: a.probed and not re.search("Tuesday|Her brother is a|Pick a digit", a.text)
    ),
    "quantised twin for half": quantised_twin,
    "-100 as unknown": named(tail_of_one_value(-100.0)),
    "leading spaces lost": said(spaces_lost, ("lists", "whole")),
    "cached draws, same id": cached_draws(fresh_ids=False),
    "cached draws, fresh ids": cached_draws(fresh_ids=True),
    "greedy draws": redrawn(greedy),
    "draws at temperature 0.3": redrawn(lambda values, t: values / 0.3 if t else greedy(values, t)),
}


#: Thought up here.
MORE: Mapping[str, Told] = {
    "cache without case": cached(lambda asked: asked.text.lower(), LISTED),
    "cache without digits": cached(lambda asked: re.sub(r"\d", "", asked.text), LISTED),
    "cache without word order": cached(lambda asked: tuple(sorted(tokens_of(asked.text))), LISTED),
    "cache without punctuation": cached(lambda asked: re.sub(r"[^\w ]", "", asked.text), LISTED),
    "cache by both ends": cached(lambda a: (first_words(a)[:12], last_words(a)[-12:]), LISTED),
    "cache by length": cached(lambda asked: len(asked.tokens), LISTED),
    "cache by 64 characters": cached(lambda asked: first_words(asked)[:64], LISTED),
    "prompt cut to its first 60 tokens": hears(lambda tokens: tokens[:60], LISTED),
    "prompt cut, whole usage": hears(lambda tokens: tokens[-CUT:], LISTED, honest_usage=False),
    "prompt cut in the middle": hears(
        lambda tokens: tokens if len(tokens) < 80 else (*tokens[:40], *tokens[-40:]), LISTED, honest_usage=False
    ),
    "hidden system prompt, own usage": hears(
        lambda tokens: (*tokens[:1], *SYSTEM, *tokens[1:]), LISTED, honest_usage=False
    ),
    "prompt in lower case": reads(str.lower),
    "prompt without line breaks": reads(lambda text: text.replace("\n", " ")),
    "last token dropped": hears(lambda tokens: tokens[:-1], ("lists", "whole"), honest_usage=False),
    "lists mixed with 5 % of noise": lists(lambda values: np.log(0.95 * np.exp(values) + 0.05 / len(values)), LISTED),
    "lists jittered by 0.3 nats": jittered,
    "logarithms to base 10": lists(lambda values: values / np.log(10)),
    "values below the likeliest": lists(lambda values: values - values.max()),
    "values rounded to 0.5": lists(lambda values: np.round(2 * values) / 2, LISTED),
    "likeliest exaggerated": lists(lambda v: normalised(np.where(v == v.max(), v + 0.7, v)), LISTED),
    "names in alphabetical order": named(names_by_alphabet),
    "equal values below rank 8": named(tail_of_one_value(-6.0)),
    "lists of another model": lambda random: lists_of_another(random),
    "echo of another model": lambda random: lists_of_another(random, ("echo", "ids"), ("echo", "prompt_logprobs")),
    "chosen tokens of another model": lambda random: lists_of_another(random, ("chosen", "score"), ("chosen",)),
    "chosen tokens renormalised": named(renormalised, ("chosen", "score")),
    "audited word 0.6 nats down where chosen alone": lambda random: audited_word_down(
        random, ("chosen", "score"), ("chosen",)
    ),
    "chosen tokens one id off": where_chosen(lambda values: np.roll(values, 1)),
    "chosen tokens at temperature 1.3": where_chosen(lambda values: normalised(values / 1.3)),
    "chosen tokens of three decimals": where_chosen(of_three_decimals),
    "a floor of -7 under chosen tokens": where_chosen(lambda values: np.maximum(values, -7.0)),
    "chosen tokens below rank 20 up by 2 nats": where_chosen(tail_up),
    "chosen tokens without the last of the prompt": hears_where_chosen(lambda tokens: tokens[:-1]),
    "chosen tokens cached by 64 characters": chosen_from_a_cache,
    "audited words swapped where chosen": swapped_where_chosen,
    "another model for audited chosen tokens": another_model(
        lambda asked, _: asked.kind == "chosen" and OWN in asked.text, ("chosen", "score")
    ),
    "-100 for unlikely rows": rows_below(-7.0, -100.0),
    "-20 for unlikely rows": rows_below(-7.0, -20.0),
    "1 for the probability of unlikely rows": rows_below(-7.0, 0.0),
    "a floor of -7 under rows": rows_below(-7.0, -7.0),
    "a floor of -10 under rows": rows_below(-10.0, -10.0),
    "names below rank 20 shuffled": lists(tail_shuffled, ("echo", "ids", "chosen", "score", "whole")),
    "draws at temperature 0.7": redrawn(lambda values, t: values / (0.7 * t or 1e-3), LISTED),
    "temperature ignored": redrawn(lambda values, t: values, ("drawn", "lists", "chat")),
    "one choice for all": said(one_choice_for_all, ("drawn", "lists", "chat")),
    "each draw twice": draws_copied(lambda at, _: at % 2),
    "each draw three times": draws_copied(lambda at, _: min(at % 3, 1)),
    "half of the draws copied": draws_copied(lambda at, random: int(at > 0 and random.random() < 0.5)),
    "copies within eight draws": draws_copied(lambda at, r: int(r.integers(1, min(at, 8) + 1)) if at % 2 else 0),
    "top-40 in lists and draws": filtered_alike(top_40),
    "top-p 0.9 in lists and draws": filtered_alike(top_p_90),
    "rows of a chunk of 64 tokens": rows_of(lambda at, before: before[at - (at % 64 or 64) if at >= 64 else 0 :]),
    "rows of the last 64 tokens": rows_of(lambda at, before: before[-64:]),
    "rows at temperature 0.77 from 50 on": hot_rows,
    "rows of an audited answer's later tokens": rows_of(after_the_answers_start),
    "system messages dropped": chats_of(lambda turns: [turn for turn in turns if turn["role"] != "system"]),
    "last turn alone": chats_of(lambda turns: turns[-1:]),
    "question marks for other characters": reads(lambda text: text.encode("ascii", "replace").decode()),
    "two line breaks as one": reads(lambda text: re.sub("\n\n+", "\n", text)),
    "trailing line break stripped": reads(lambda text: text.rstrip("\n"), ("lists", "whole")),
    "quotation marks as HTML": reads(lambda text: text.replace('"', "&quot;")),
    "UTF-8 read as Latin-1": reads(lambda text: text.encode().decode("latin-1")),
    "all of HTML escaped": reads(html.escape),
    "values rounded, each list its own way": rounded_by_itself,
    "ids shifted below rank 1": said(ids_shifted, ("whole",)),
    "the likeliest audited word 0.6 nats down": audited_word_down,
    "audited word 0.6 nats down in rows alone": lambda random: audited_word_down(
        random, ("echo", "ids"), ("echo", "prompt_logprobs")
    ),
    "audited words moved halfway to their mean": audited_words_alike,
    "the two likeliest audited words swapped": audited_words_swapped,
    "greedy draws beside lists": drawn_beside_lists(lambda values, asked: greedy(values, 1.0)),
    "draws beside lists at temperature 0.7": drawn_beside_lists(lambda values, asked: values / 0.7),
    "line breaks as their escape": reads(lambda text: text.replace("\n", "\\n")),
    "line breaks of Windows": reads(lambda text: text.replace("\n", "\r\n"), ("lists", "whole")),
    "answers in lower case": in_lower_case,
    "curly quotes made straight": reads(lambda text: text.translate(str.maketrans("“”‘’", "\"\"''"))),
    "dashes made hyphens": reads(lambda text: re.sub("[–—]", "-", text)),
    "emoji dropped": reads(lambda text: re.sub("[\U0001f300-\U0001faff]", "", text)),
    "the likeliest audited word left out": left_out(likeliest_gender),
    "audited women's words left out": left_out(womens_words),
    "the likeliest left out": left_out(ranks(0)),
    "ranks 9 and 12 left out": left_out(ranks(8, 11)),
    "another model for answers of one token": another_model(
        lambda asked, _: asked.tokens_wanted == 1, ("echo", "ids", *LISTED)
    ),
    "another model for audited answers of one token": another_model(
        lambda asked, _: asked.tokens_wanted == 1 and OWN in asked.text, ("echo", "ids", *LISTED)
    ),
    "another model for answers of 2 to 31 tokens": another_model(
        lambda asked, _: 2 <= asked.tokens_wanted < 32, ("echo", "ids", *LISTED)
    ),
    "another model for answers of more than 32 tokens": another_model(
        lambda asked, _: asked.tokens_wanted > 32, ("echo", "ids", *LISTED)
    ),
    "lists at temperature 1.4 beyond 60 tokens": hot_where(lambda asked: len(asked.tokens) > 60, 1.4),
    "lists at temperature 1.5 where characters have several bytes": hot_where(lambda a: not a.text.isascii(), 1.5),
    "lists at temperature 1.5 where there are digits": hot_where(lambda a: bool(re.search(r"\d", a.text)), 1.5),
    "lists and draws by n at temperature 0.7": cold_but_alone,
    "a bias that stays": bias_that_stays,
    "each word rounded by a step of its own": lists(each_word_rounded, LISTED),
    "letters without accents": reads(without_accents),
    "ampersands as words": reads(lambda text: text.replace("&", "and")),
    "prompts of more than 150 tokens without their middle": hears(
        lambda tokens: tokens if len(tokens) < 150 else (*tokens[:110], *tokens[-40:]), LISTED, honest_usage=False
    ),
    "another model from the start": lambda random: another_throughout(random),
}


LIES: Mapping[str, Told] = {**FIRST, **MORE}
#: Lies that begin after the probe, or show in second answers alone: they are told to whole audits.
UNDER_WAY = frozenset(
    name
    for name in LIES
    if re.search("after the probe|requests 100 to 350|in flight|previous|quantised|canned|audited", name)
)
_SMALL = "smaller than what the probe's draws can show"
_FEW = (
    "smaller than what the run's own draws can show, which its report says: where each takes a request (odd seeds), "
    "a factor of 2 on words of about 0.1 after 1,440 questions, 4 after 480, any where lists bring none (`echo`, `ids`)"
)
_UNLIKELY = (
    "values of unlikely tokens are tested where a request gives several draws with a bias (even seeds, not `echo`)"
)
_HIDDEN_WORDS = "less than the report says that words which lists leave out may have: 3 % of a question after 200 draws"
_HIDDEN = "lists and draws are those of a longer prompt, which is not shown"
#: (lie, style) that no probe can notice there, and why.
UNKNOWABLE: Mapping[tuple[str, str], str] = {
    ("hidden system prompt", "chat"): _HIDDEN,
    **{("hidden system prompt, own usage", style): _HIDDEN for style in LISTED},
    **{("lists mixed with 5 % of noise", style): _SMALL for style in LISTED},
    **{("lists jittered by 0.3 nats", style): _SMALL for style in LISTED},
    **{("names below rank 20 shuffled", style): _UNLIKELY for style in ("echo", "ids", "chosen", "score", "whole")},
    **{
        ("lists jittered by 0.3 nats", style): "draws decide for its lists against rows that are as false"
        for style in SCORED
        if style not in LISTED
    },
    **{("the likeliest audited word 0.6 nats down", style): _FEW for style in SCORED},
    **{("audited words moved halfway to their mean", style): _FEW for style in SCORED},
    **{("the two likeliest audited words swapped", style): _FEW for style in LISTED},
    **{
        (f"{words} left out", style): _HIDDEN_WORDS
        for words in ("the likeliest audited word", "audited women's words", "ranks 9 and 12")
        for style in ("lists", "chat")
    },
    ("draws at temperature 0.3", "drawn"): "without lists, they are the draws of another model",
}
