"""A paper's own model beside its printed figures."""

import pytest

from audit.analysis.comparing.reproduction import agreement, reproductions
from audit.results import ModelInfo, SuiteInfo
from tests.audit.report import made_up as mu

WHERE = {"bias": "implicit"}
PRINTED = {"model": "Llama-2-7B", "measure": "p_female", "where": WHERE, "value": 0.541, "step": 0.001}
LLAMA = "meta-llama/Llama-2-7b-hf"


def model(**fingerprint):
    return ModelInfo(
        name="mine", backend="HFBackend", fingerprint=fingerprint, fingerprint_id="f", notes={}, asked=0, cached=0,
        failed=0, retried=0, seconds=0.0, prompt_tokens=0, completion_tokens=0,
    )  # fmt: skip


def suite(**more):
    return SuiteInfo(
        name="s", title="s", n_items=1, signature={}, published=[{**PRINTED, "model_ids": (LLAMA,), **more}]
    )


def measured(value, low=None, high=None):
    return mu.measure("mine", "p_female", WHERE, value, suite="s").model_copy(update={"low": low, "high": high})


@pytest.mark.parametrize(
    ("fingerprint", "found"),
    [
        ({"hub_id": LLAMA, "adapter": None, "quantisation": None}, True),
        ({"backend": "openai", "model": LLAMA}, True),
        ({"hub_id": "meta-llama/Llama-2-13b-hf"}, False),
        ({"hub_id": LLAMA, "quantisation": "bnb-4bit"}, False),
        ({"hub_id": LLAMA, "adapter": "sha256:1"}, False),
        ({"weights_sha256": "abc"}, False),
    ],
)
def test_only_the_unchanged_model_is_set_against_print(fingerprint, found):
    assert bool(reproductions([suite()], [model(**fingerprint)], [measured(0.5412)])) is found


def test_a_reproduction_carries_difference_and_design():
    source = {"difference": "Other templates."}
    (one,) = reproductions([suite(source=source)], [model(hub_id=LLAMA)], [measured(0.5412, 0.5, 0.6)])
    assert one.difference == pytest.approx(0.0002)
    assert (one.agreement, one.published_model, one.design_difference) == (
        "within rounding", "Llama-2-7B", "Other templates.",
    )  # fmt: skip


def test_a_served_models_weights_are_said_to_be_unknown():
    (one,) = reproductions([suite()], [model(backend="openai", model=LLAMA)], [measured(0.5412)])
    assert "whether these are the paper's weights, unquantised, is not known" in one.design_difference


@pytest.mark.parametrize(
    ("value", "low", "high", "step", "expected"),
    [
        (0.5415, 0.5, 0.6, 0.001, "within rounding"),
        (0.5405, None, None, 0.001, "within rounding"),
        (0.5420, 0.5, 0.6, 0.001, "within the interval"),
        (0.5420, 0.5416, 0.6, 0.001, "differs"),
        (0.5420, None, None, 0.001, "differs"),
        (0.5410, None, None, None, "unknown"),
        (0.5410, 0.5, 0.6, None, "within the interval"),
        (None, None, None, 0.001, "unknown"),
        (None, 0.2, 0.5, 0.001, "differs"),
    ],
)
def test_agreement_is_to_half_the_last_printed_digit(value, low, high, step, expected):
    assert agreement(measured(value, low, high), 0.541, step) == expected
