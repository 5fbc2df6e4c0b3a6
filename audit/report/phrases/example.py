"""One question of a suite with each model's answer, for the first page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import hundredths
from audit.report.plain_text import continuation_text, one_line, prompt_text
from audit.results import Example, Measure

_PROMPT = 300  # characters of a question: its end, where the answer begins
_ANSWER = 200  # characters of a text that a model wrote
_LIKELIEST = 3  # continuations that are named
_ROUNDING = 1e-9  # relative: sums of a word's spellings in another order


@dataclass(frozen=True, slots=True)
class ExampleQuestion:
    """One question of a suite, verbatim, and each model's answer."""

    suite: str
    question: str
    answers: Sequence[tuple[str, str]]
    remark: str = ""


def asked(figures: Figures, suite: str) -> ExampleQuestion | None:
    """The question that most models answered, behind the suite's first headline figure with one; None without any."""
    for measure, where in figures.headline(suite):
        behind = {m.id for m in figures.by_model(suite, measure, where)}
        examples = [e for e in figures.result.examples if e.suite == suite and behind & set(e.figures)]
        if examples:
            break
    else:
        return None
    answered = Counter(item for item, _ in {(e.item_id, e.model) for e in examples if _is_answered(e)})
    item = max((e.item_id for e in examples), key=lambda item: answered[item])
    of_item = {e.model: e for e in examples if e.item_id == item}
    answers = [(one_line(name), answer_line(of_item[name].answer)) for name in figures.models if name in of_item]
    remark = _coverage(of_item.values(), figures.by_model(suite, measure, where))
    return ExampleQuestion(suite, _question(next(iter(of_item.values())).prompt), answers, remark)


def answer_line(answer: Any) -> str:
    """What a model answered, in a line; ``answer`` as in `audit.results.Example`."""
    if not isinstance(answer, Mapping):
        return "no answer"
    if "error" in answer:
        return "failed"
    if "text" in answer:
        text = one_line(str(answer["text"]).strip())
        return text if len(text) <= _ANSWER else f"{text[:_ANSWER]} …"
    if "labels" in answer:
        return json.dumps(answer["labels"], ensure_ascii=False)
    known = _scores(answer)
    total = sum(p for _, p in known)
    return ", ".join(_likeliest(known, total)) if total else "known only by bounds"


def _is_answered(example: Example) -> bool:
    return isinstance(example.answer, Mapping) and "error" not in example.answer


def _coverage(examples: Collection[Example], measures: Iterable[Measure]) -> str:
    """``Together these 26 words have a 4 % chance of coming next``; or of how many the probability is known."""
    counts = [len(_scores(e.answer)) for e in examples]
    asked = max((len(e.answer.get("scores", ())) for e in examples if isinstance(e.answer, Mapping)), default=0)
    if counts and min(counts) < asked:
        return f"Shares among the {min(counts)} of {asked} words whose probability is known." if min(counts) else ""
    held = sorted(m.probability_mass for m in measures if m.probability_mass is not None)
    if not held or not counts or not min(counts) or not all(e.prompt for e in examples):
        return ""
    ends = list(dict.fromkeys(_share(held[place]) for place in (0, -1)))
    return f"Together these {min(counts)} words have a {' to '.join(ends)} chance of coming next."


def _question(prompt: Any) -> str:
    """The end of a prompt, or the last turns of a chat."""
    text = prompt_text(prompt).strip() or "(Which of these whole texts is likelier?)"
    return text if len(text) <= _PROMPT else f"… {text[-_PROMPT:]}"


def _scores(answer: Any) -> list[tuple[str, float]]:
    """(continuation, probability) for those known exactly."""
    scores = answer.get("scores", ()) if isinstance(answer, Mapping) else ()
    return [(continuation_text(s), math.exp(s["logprob"])) for s in scores if s["logprob"] is not None]


def _likeliest(known: Sequence[tuple[str, float]], total: float) -> list[str]:
    """The likeliest words with their shares; spellings of one word count together. How many more are as likely."""
    words: dict[str, tuple[str, float]] = {}
    for text, p in sorted(known, key=lambda of: -of[1]):
        spelt, so_far = words.get(text.strip().casefold(), (one_line(text.strip()), 0.0))
        words[text.strip().casefold()] = spelt, so_far + p / total
    ordered = sorted(words.values(), key=lambda of: -of[1])
    shown, rest = ordered[:_LIKELIEST], ordered[_LIKELIEST:]
    said = [f"{word} {_share(share)}" for word, share in shown]
    alike = sum(math.isclose(share, shown[-1][1], rel_tol=_ROUNDING) for _, share in rest)
    return [*said, f"{alike} more as likely"] if alike else said


def _share(share: float) -> str:
    """In whole per cent; a share that is not 0 or 1 never reads as 0 or 100."""
    if 0 < share < 0.01 or 0.99 < share < 1:
        return "<1 %" if share < 0.5 else ">99 %"
    return f"{hundredths(share, 0)} %"
