"""Which models are the same on another engine, which are made from each other, and what each change does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from audit.analysis.answers import SuiteAnswers
from audit.analysis.comparing.attribution import (
    Step,
    changed_parts,
    engine_pairs,
    lineage,
    model_steps,
    with_engine_noise,
)
from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.measures import evaluate_suite
from audit.analysis.table import Table
from audit.report.phrases.comparisons import describe
from audit.results import Rung
from backends.base import Description
from backends.errors import ConfigError
from suites import OccuGender
from suites.base import IdentifiedInterval, MeasureSpec, Row

ENGINE = frozenset({"backend", "dtype"})


def model(backend: str = "hf", **parts: Any) -> Description:
    """A described model: its parts, and a fingerprint that names them and the engine."""
    known = {"weights": "w", "quantisation": None, "adapter": None, "tokenizer": "gguf:w", **parts}
    return Description({"backend": backend, "dtype": "float32", **known}, frozenset({"score"}), parts=known,
                       engine_fields=ENGINE)  # fmt: skip


BASE, LORA = model(), model(adapter="lora")
SERVER = Description({"backend": "openai", "model": "x"}, frozenset({"score"}))


def rows(values: Mapping[int, float]) -> Table:
    return Table.of(Row(str(i), {"occupation": i % 40}, {"p": IdentifiedInterval.exact(v)}) for i, v in values.items())


def test_an_adapter_on_the_same_weights_is_no_engine() -> None:
    models = {"base": BASE, "tuned": LORA, "gguf": model("llamacpp"), "server": SERVER}
    assert engine_pairs(models) == [("base", "gguf")]
    assert engine_pairs(models, [("server", "base", "left out")]) == [("base", "gguf"), ("base", "server")]


def test_a_declared_pair_with_and_without_adapter_is_refused() -> None:
    with pytest.raises(ConfigError, match="differ in their adapter"):
        engine_pairs({"base": BASE, "tuned": LORA}, [("base", "tuned")])


def test_a_field_of_one_fingerprint_alone_is_no_engine() -> None:
    known = {"weights": "w"}
    plain = Description({"backend": "hf", "weights_sha256": "w"}, frozenset(), parts=known, engine_fields=ENGINE)
    fields = {"backend": "other", "weights_sha256": "w", "tokenizer_sha256": None}
    tuned = Description({**fields, "adapter_sha256": "x"}, frozenset(), parts=known, engine_fields=ENGINE)
    engine = Description(fields, frozenset(), parts=known, engine_fields=ENGINE)
    assert engine_pairs({"plain": plain, "tuned": tuned, "engine": engine}) == [("plain", "engine")]
    assert changed_parts(plain, tuned) == ("adapter_sha256",)
    converted = Description({**fields, "weights_sha256": "v", "adapter_sha256": "x"}, frozenset(),
                            parts={"weights": "v"}, engine_fields=ENGINE)  # fmt: skip
    for other in (tuned, converted):
        with pytest.raises(ConfigError, match="differ in their adapter_sha256"):
            engine_pairs({"plain": plain, "other": other}, [("plain", "other")])


def test_a_field_that_a_part_tells_of_may_be_of_one_alone() -> None:
    known = {"weights": "w", "tokenizer": "gguf:w", "settings": "s"}
    fields = {"backend": "hf", "tokenizer_sha256": "t", "files_sha256": "s"}
    hf = Description(fields, frozenset(), parts=known, engine_fields=ENGINE)
    gguf = Description({"backend": "gguf", "tokenizer": "gguf:w"}, frozenset(), parts=known, engine_fields=ENGINE)
    assert engine_pairs({"hf": hf, "gguf": gguf}) == [("hf", "gguf")]


def test_unknown_parts_pair_with_nothing() -> None:
    assert changed_parts(BASE, SERVER) is None
    assert engine_pairs({"a": SERVER, "b": SERVER}) == []
    assert model_steps({"a": SERVER, "b": SERVER}) == []


def test_another_fingerprint_field_is_a_change_of_the_model() -> None:
    steered = Description({**BASE.fingerprint, "steering": 2}, frozenset(), parts=BASE.parts, engine_fields=ENGINE)
    more = Description({**BASE.fingerprint, "steering": 3}, frozenset(), parts=BASE.parts, engine_fields=ENGINE)
    assert changed_parts(steered, more) == ("steering",)
    assert engine_pairs({"a": steered, "b": more}) == []


def test_steps_lead_from_the_nearest_rung() -> None:
    models = {"tuned": LORA, "gguf": model("llamacpp"), "base": BASE, "other": model(weights="v", tokenizer="gguf:v")}
    assert model_steps(models) == [Step("base", "tuned", ("adapter",), ())]
    del models["base"]
    assert model_steps(models) == [Step("gguf", "tuned", ("adapter",), ("backend",))]


def test_two_adapters_each_step_from_the_base() -> None:
    models = {"one": model(adapter="1"), "two": model(adapter="2"), "base": BASE}
    assert [(s.a, s.b) for s in model_steps(models)] == [("base", "one"), ("base", "two")]
    del models["base"]
    assert [(s.a, s.b) for s in model_steps(models)] == [("one", "two")]


def test_a_declared_quantisation_names_the_quantisation_alone() -> None:
    original = model(weights="v", tokenizer="json:t")
    quantised = model("llamacpp", quantisation="Q4_1")
    (step,) = model_steps({"q4": quantised, "original": original}, [("original", "q4", "left out")])
    assert step == Step("original", "q4", ("quantisation",), ("backend",))
    assert engine_pairs({"q4": quantised, "original": original}) == []


def test_a_change_is_decided_whatever_other_models_there_are() -> None:
    """In a run with eleven other models Holm's correction over all pairs hides what the step itself shows."""
    rng = np.random.default_rng(2)
    base = rng.uniform(0.3, 0.5, 40)
    values = {"base": base, "tuned": base + 0.04 + 0.1 * rng.standard_normal(40)}
    values |= {f"m{i}": base + 0.1 * rng.standard_normal(40) for i in range(11)}
    specs = [MeasureSpec("p_female", "p")]
    by_model = {name: SuiteAnswers(OccuGender(), rows(dict(enumerate(own))), specs, {}) for name, own in values.items()}
    (change,) = model_steps({"base": BASE, "tuned": LORA})
    found = evaluate_suite("s", by_model, signature={}, margins=0.02, confidence=0.95, seed=0, steps=[change])
    (among_all,) = [c for c in found.comparisons if {c.a, c.b} == {"base", "tuned"}]
    (step,) = found.ladder
    assert (step.a, step.b) == (Rung(model="base", suite="s"), Rung(model="tuned", suite="s"))
    assert (step.changes, step.engine) == (["adapter"], [])
    assert among_all.verdict == "inconclusive"
    (c,) = step.comparisons
    assert (c.a, c.b, c.verdict) == ("base", "tuned", "larger")
    assert c.difference == pytest.approx((values["tuned"] - base).mean())
    assert c.p == pytest.approx(among_all.p)


def test_engine_noise_is_not_set_against_an_adapter() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0.3, 0.5, 40)
    shifts = {"base": 0.0, "gguf": 0.03, "tuned": 0.02, "other": 0.02}
    by_model = {n: rows(dict(enumerate(base + s + rng.normal(0, 0.001, 40)))) for n, s in shifts.items()}
    models = {"base": BASE, "gguf": model("llamacpp"), "tuned": LORA, "other": model(weights="v", tokenizer="gguf:v")}
    comparisons = compare_models(by_model, [MeasureSpec("p", "p")], suite="s", margins=0.001)
    found = {(c.a, c.b): c for c in with_engine_noise(comparisons, engine_pairs(models), model_steps(models))}
    assert found["base", "tuned"].engine_noise is None
    assert not found["base", "tuned"].within_noise
    assert found["base", "other"].within_noise
    assert found["base", "gguf"].engine_noise is None
    noise = found["base", "gguf"].difference
    assert found["base", "other"].engine_noise == pytest.approx(noise)
    assert "smaller than the engines' noise" in describe(found["base", "other"])


def test_lineage_holds_what_steps_join() -> None:
    steps = [Step("a", "b", (), ()), Step("b", "c", (), ()), Step("x", "y", (), ())]
    pairs = {tuple(sorted(pair)) for pair in lineage(steps)}
    assert pairs == {("a", "b"), ("a", "c"), ("b", "c"), ("x", "y")}
