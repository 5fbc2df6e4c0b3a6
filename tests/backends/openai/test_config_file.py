"""A hosted model from a TOML file: its options, its prices, and a limit to costs that holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit import load_audit
from backends.errors import ConfigError
from backends.openai import OpenAIBackend

SUITE = '[suites.occugender]\nsuite = "OccuGender"\n'


def write(folder: Path, options: str) -> Path:
    file = folder / "audit.toml"
    file.write_text(f'[models.hosted]\nbackend = "openai"\n{options}\n{SUITE}')
    return file


def test_prices_and_all_other_options_are_given_by_a_toml_file(tmp_path: Path) -> None:
    options = (
        'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\ntimeout = 7\nmax_in_flight = 3\nsamples = 5\n'
        'max_cost = 2\nprobe_folder = "probes"\n'
        "prices = { prompt = 0.15, completion = 0.6, cached = 0.075 }"
    )
    backend = load_audit(write(tmp_path, options)).models["hosted"]
    backend.check()
    assert isinstance(backend, OpenAIBackend)
    assert (backend.options.timeout, backend.max_in_flight, backend.samples) == (7, 3, 5)
    assert backend.options.max_cost == 2
    # A million tokens each: 0.15 and 0.6.
    assert backend.highest_cost(1_000_000, 1_000_000) == pytest.approx(0.75)
    assert backend.spent() == 0


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ("prices = 3", "prices"),
        ("prices = { prompt = 1 }", "prices.completion"),
        ("prices = { prompt = 1, completion = 2, output = 3 }", "prices.output"),
        ('prices = { prompt = "1", completion = 2 }', "prices.prompt"),
        ("prices = { prompt = true, completion = 2 }", "prices.prompt"),
        ("prices = { prompt = 1, completion = nan }", "prices.completion"),
        ("prices = { prompt = 1, completion = 2, cached = -1 }", "prices.cached"),
        ('timeout = "5"', "timeout"),
        ('max_in_flight = "8"', "max_in_flight"),
        ("max_in_flight = 2.5", "max_in_flight"),
        ("samples = true", "samples"),
        ("api_key_env = 1", "api_key_env"),
        ("key_file = 1", "key_file"),
        ("max_cost = 1.0", "max_cost"),
        ("max_cost = -1.0\nprices = { prompt = 1, completion = 2 }", "max_cost"),
        ("max_costs = 1.0", "max_costs"),
    ],
)
def test_a_bad_option_in_a_toml_file_is_reported_by_name(options: str, field: str, tmp_path: Path) -> None:
    file = write(tmp_path, f'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n{options}')
    with pytest.raises(ConfigError) as caught:
        load_audit(file).check()
    assert caught.value.field.endswith(f"models.hosted.{field}")


@pytest.mark.parametrize("options", ['base_url = 1\nmodel = "m"', 'base_url = "http://h/v1"\nmodel = 1'])
def test_a_url_or_model_that_is_not_a_text_is_refused(options: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a text"):
        load_audit(write(tmp_path, options))


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ("prices = {input = 1.0, output = 2.0}", "prompt"),
        ('url = "http://127.0.0.1:1/v1"', "base_url"),
        ('api_version = "2024-10-21"', "query"),
    ],
)
def test_other_tools_names_of_options_lead_to_these(options: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
        load_audit(write(tmp_path, f'base_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n{options}'))


def test_the_recipes_config_of_a_hosted_model_is_read(tmp_path: Path) -> None:
    recipes = (Path(__file__).parents[3] / "docs" / "recipes.md").read_text("utf-8")
    file = tmp_path / "hosted.toml"
    file.write_text(recipes.split("```toml\n")[1].split("```")[0], "utf-8")
    audit = load_audit(file)
    (model,) = audit.models.values()
    assert isinstance(model, OpenAIBackend)
    assert model.samples == 20
