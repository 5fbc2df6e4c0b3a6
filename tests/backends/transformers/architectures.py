"""Every causal architecture of the installed transformers, tiny and with random weights, against plain passes.

Scores of twenty requests and the likeliest texts of five prompts, in one batch and with equal prompts that are read
once, each compared with one plain forward pass a token.
"""

from __future__ import annotations

import collections
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from backends import HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling, ScoreRequest, ScoreResponse
from backends.errors import AuditError
from backends.transformers.scoring.tiny import tiny_config
from backends.transformers.source import WRITING_PARTS, model_class
from tests.backends.local.tiny_models import byte_level_tokenizer

PROMPTS = ("the police said that", "a", "the man said that the woman", "the woman", "policeman the the the man")
SCORED = (*PROMPTS, *(f"{prompt} {end}" for prompt in PROMPTS for end in ("she said", "he and the man", "a")))
CONTINUATIONS = (" she", " he", " the policeman")
_CLOSE = 1e-3  # nats
_TOKENS = 8
_TWO_LENGTHS = (4, _TOKENS)
_LARGEST = 25_000_000  # weights


def configs(only: Any = (), *, multimodal: bool = False) -> Iterator[tuple[str, Any]]:
    """The name and class of each causal architecture's config; or of those loaded for images or sound as well."""
    causal = list(MODEL_FOR_CAUSAL_LM_MAPPING)
    others = [*transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, *transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING]
    for config in dict.fromkeys(one for one in others if one not in causal) if multimodal else causal:
        if not only or config.model_type in only:
            yield config.model_type, config


def summary(found: list[dict[str, Any]]) -> str:
    """How many were made, scored and wrote, by which route."""
    made = [one for one in found if "unmade" not in one]
    scored = [one for one in made if one["scores"] == "true"]
    tree = sum(one["route"].startswith("tree") for one in scored)
    counts = {of: dict(collections.Counter(one[of] for one in made)) for of in ("scores", "texts")}
    writing = sum(one["texts"] == "true" for one in scored)
    return (
        f"{len(found)} architectures, {len(made)} made small; scores {counts['scores']}; texts {counts['texts']}; "
        f"{writing} of {len(scored)} that score write true texts; {tree} of {len(scored)} score by the tree"
    )


def shortcomings(found: list[dict[str, Any]]) -> list[str]:
    """What keeps these from passing: anything wrong, a crash, too few that write or that the tree scores."""
    made = [one for one in found if "unmade" not in one]
    scored = [one for one in made if one["scores"] == "true"]
    bad = ("wrong", "crash")
    lacking = [f"{one['kind']}: {one[of]}" for one in made for of in ("scores", "texts") if one[of].startswith(bad)]
    if sum(one["texts"] == "true" for one in scored) < 0.95 * len(scored):
        lacking.append("too few of those that score write true texts")
    if sum(one["route"].startswith("tree") for one in scored) < 0.8 * len(scored):  # the others: docs/local-models.md
        lacking.append("too few score by the tree")
    return lacking


def examined(config: Any) -> dict[str, Any]:
    """One architecture: ``true``, ``wrong`` or the error for its scores and its texts."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.logging.disable_progress_bar()
        try:
            model = saved_model(config, Path(folder))
        except Exception as error:  # any of a hundred classes, with sizes that may not fit together
            return {"unmade": f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"}
        backend = HFBackend(folder, threads=1)
        try:
            backend.check()
            decoder = backend.describe_blocking().notes.get("decoder", "")
            backend.load()
        except AuditError as error:
            said = str(error)[:160].replace(folder, "FOLDER")
            return {"scores": f"refused: {said}", "texts": "refused", "route": "", "way": ""}
        except Exception as error:
            return {"scores": f"crash {type(error).__name__}: {error}"[:160], "texts": "crash", "route": "", "way": ""}
        scores, texts = _scores(backend, model), _texts(backend, model)
        notes = backend.notes_of_run()
        backend.close_blocking()
        return {
            "scores": scores,
            "texts": texts,
            "route": notes.get("route", ""),
            "way": notes.get("texts", ""),
            "decoder": decoder,
        }


def saved_model(config: Any, folder: Path) -> Any:
    """A tiny model of this architecture, saved with a tokenizer; as transformers loads it."""
    tokenizer = byte_level_tokenizer()
    plain = tiny_config(config())
    loader = model_class(plain) or transformers.AutoModelForCausalLM
    # Of a kind with a part that writes, the whole is saved, as it is released.
    whole = transformers.AutoModelForMultimodalLM if plain.model_type in WRITING_PARTS else loader
    torch.manual_seed(11)
    with torch.device("meta"):
        size = sum(p.numel() for p in whole.from_config(plain).parameters())
    if size > _LARGEST:
        raise ValueError(f"still {size:,} weights")
    model = whole.from_config(plain)
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter.std() < 0.2:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = loader.from_pretrained(folder).eval()
    _plain(loaded, [5, 6, 7, 8], 1)  # sizes that do not fit together show here
    return loaded


def _scores(backend: HFBackend, model: Any) -> str:
    requests = [ScoreRequest(prompt, CONTINUATIONS[: 1 + i % 3]) for i, prompt in enumerate(SCORED)]
    try:
        answers = backend.run_blocking(requests)
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"[:160]
    tokenizer, furthest = byte_level_tokenizer(), 0.0
    for request, answer in zip(requests, answers, strict=True):
        if not isinstance(answer, ScoreResponse):
            return f"refused: {answer}"[:160]
        for continuation, score in zip(request.continuations, answer.scores, strict=True):
            count = len(tokenizer(request.prompt)["input_ids"])
            expected = _plain(model, tokenizer(request.prompt + continuation)["input_ids"], count)
            if score.logprob is None or not torch.isfinite(torch.tensor(expected)):
                return "no finite number"
            furthest = max(furthest, abs(score.logprob - expected))
    return "true" if furthest < _CLOSE else f"wrong by {furthest:.2g}"


def _plain(model: Any, ids: list[int], start: int) -> float:
    """log P of the tokens from ``start`` on: one forward pass, without a cache."""
    with torch.inference_mode():
        table = model(torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1)
    return sum(float(table[at - 1, ids[at]]) for at in range(start, len(ids)))


def _texts(backend: HFBackend, model: Any) -> str:
    tokenizer = byte_level_tokenizer()
    tokens = {prompt: tokenizer(prompt)["input_ids"] for prompt in PROMPTS}
    # Then each prompt that can be read once for two texts, of which one ends first: the batch goes on with the others.
    batches = [[(p, _TOKENS) for p in PROMPTS], [(p, n) for p in PROMPTS if len(tokens[p]) > 1 for n in _TWO_LENGTHS]]
    try:
        answers = [backend.run_blocking([GenerateRequest(p, Sampling(max_tokens=n)) for p, n in b]) for b in batches]
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"[:160]
    ends = _end_tokens(model, tokenizer)
    likeliest = {prompt: _likeliest(model, ids, ends) for prompt, ids in tokens.items()}
    compared = 0
    for (prompt, most), answer in zip(itertools.chain(*batches), itertools.chain(*answers), strict=True):
        if not isinstance(answer, GenerateResponse):
            return f"refused: {answer}"[:160]
        expected = likeliest[prompt][:most]
        if len(expected) < most and not ends & {*expected}:  # up to a near tie
            continue
        if tokenizer.decode([token for token in expected if token not in ends]) != answer.text:
            return "wrong"
        compared += 1
    return "true" if compared else "refused: every text has a near tie"


def _end_tokens(*sources: Any) -> set[int]:
    """The tokens that end a text, from a model's settings for texts and its tokenizer."""
    values = [getattr(getattr(one, "generation_config", one), "eos_token_id", None) for one in sources]
    return {token for value in values if value is not None for token in (value if isinstance(value, list) else [value])}


def _likeliest(model: Any, prompt: list[int], ends: set[int]) -> list[int]:
    """The likeliest next tokens, up to an end token or to a near tie, which rounding may decide."""
    found: list[int] = []
    with torch.inference_mode():
        while len(found) < _TOKENS and not ends & {*found}:
            logits = model(torch.tensor([[*prompt, *found]]), use_cache=False).logits[0, -1]
            best, other = logits.topk(2).values.tolist()
            if best - other < 10 * _CLOSE:
                break
            found.append(int(logits.argmax()))
    return found
