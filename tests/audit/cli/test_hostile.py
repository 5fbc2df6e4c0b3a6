"""Names and texts that would act, disguise themselves or fit no encoding: every command shows them, and obeys none."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from audit.cli import main
from backends import FakeBackend
from backends.base import GenerateRequest, Sampling, ScoreRequest
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Row, Suite, flag
from suites.presentation import Chart, Meaning, Shown

ACTS = "x[/red]\x1b[31m\u202ebidi\nnew\x9bC1</script><!--<img src=x onerror=alert(1)>{{7*7}}`$(id)`\u2028|"
HALF = "\ud800"
MODELS = ("a[/red]<b>", "b[bold]</script>")


class Hostile(Suite):
    """A suite whose every text acts."""

    name = "hostile"
    title = f"Title {ACTS}"
    shown = Shown({f"m{ACTS}": Meaning("gets {points} " + ACTS, "")}, charts=[Chart("dots", ACTS, (f"m{ACTS}",))])

    def signature(self) -> dict[str, Any]:
        return {"version": 1, ACTS: ACTS}

    def items(self) -> Iterator[Item]:
        for i in range(48):
            factors = {f"of{ACTS}": f"{i % 8}{ACTS}", "half": str(i % 2)}
            asked = GenerateRequest(f"{i}{ACTS}{HALF}", Sampling(max_tokens=5))
            scored = ScoreRequest(f"{i} {ACTS}{HALF}", (f" a{ACTS}{HALF}", " b"))
            yield Item(f"{i}{ACTS}", asked if i % 2 else scored, factors)

    def read(self, item: Item, response: Any) -> Row:
        if hasattr(response, "text"):
            return Row(item.id, item.factors, {}, missing=f"it wrote {response.text}")
        first, second = (score.high for score in response.scores)
        return Row(item.id, item.factors, {f"m{ACTS}": flag(first > second)})

    def measures(self, rows: Any) -> Iterator[MeasureSpec]:
        common: dict[str, Any] = {"unit": "share", "kind": "share", "neutral": 0.5, "clusters": (f"of{ACTS}",)}
        yield MeasureSpec(f"m{ACTS}", f"m{ACTS}", {}, primary=True, population=ACTS, **common)
        yield MeasureSpec(f"m{ACTS}", f"m{ACTS}", {"half": "0"}, family=ACTS, **common)

    def cautions(self) -> list[str]:
        return [ACTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile[red]")
    models = {name: FakeBackend(f"{name}{ACTS}{HALF}", generate=lambda p, s: f"{ACTS}{HALF}") for name in MODELS}
    limits = {f"m{ACTS}": (None, 0.2)}
    title = f"T {ACTS}"
    Audit(models, [Hostile()], title=title, db=folder / "a.db", out=folder, small_sample=True, limits=limits).run_sync()
    return folder


def acting(text: str) -> set[str]:
    """Characters of a text that a terminal obeys, or that nobody sees."""
    invisible = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return {hex(ord(char)) for char in invisible - {"\n", "\t"}}


COMMANDS = [
    ["show", "FIGURE"],
    ["show", "FIGURE", "--json"],
    ["ls", "runs"],
    ["ls", "models"],
    ["ls", "models", "--json"],
    ["compare", *MODELS],
    ["compare", *MODELS, "--json"],
    ["gate"],
    ["gate", "--json", "--junit", "OUT.xml", "--markdown", "OUT.md"],
    ["history"],
    ["history", "--json"],
    ["history", "--html", "OUT.html"],
    ["correlate"],
    ["baseline", "list"],
    ["cache", "stats"],
    ["cache", "verify"],
    ["report", "--out", "OUT"],
    ["export", "OUT.jsonl"],
    ["export", "OUT", "--for", "inspect"],
    ["export", "OUT", "--for", "lm-eval"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_hostile_texts_are_shown_and_not_obeyed(
    command: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main_of = [*command, "--db", str(folder / "a.db")]
    if "FIGURE" in command:
        with pytest.raises(SystemExit):
            main(["report", "--format", "json", "--out", str(folder), "--db", str(folder / "a.db")])
        capsys.readouterr()
        main_of[1] = json.loads((folder / "report.json").read_text("utf-8"))["measures"][0]["id"]
    with pytest.raises(SystemExit) as left:
        main([word.replace("OUT", str(tmp_path / "out")) for word in main_of])
    out, err = capsys.readouterr()
    assert left.value.code in (0, None, 3), err
    assert acting(out + err) == set()
    for path in tmp_path.rglob("*.html"):
        page = re.sub(r"<script[^>]*>.*?</script>", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert acting(page) == set()
        assert not re.search(r"<!--|<img|onerror=(?!alert\(1\)&gt;)", page)


def test_a_title_with_half_a_character_is_refused_before_asking(tmp_path: Path) -> None:
    backend = FakeBackend()
    with pytest.raises(ConfigError, match="half a character"):
        Audit({"a": backend}, [Hostile()], title=HALF, db=tmp_path / "a.db", out=tmp_path).run_sync()
    assert not backend.asked
