"""Mistakes at the command line: each is told in a line or two with its exit code, none as a traceback."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from audit.cli import main

#: (arguments, exit code, what is said). CONFIG stands for the config of a finished run, HERE for its folder.
MISTAKES: tuple[tuple[str, int, str], ...] = (
    ("", 2, "Usage"),
    ("rnu CONFIG", 2, "rnu"),
    ("run nowhere.py", 2, "no such file"),
    ("run HERE", 2, "HERE"),
    ("run HERE/empty.py", 2, "Audit"),
    ("run HERE/broken.py", 2, "broken.py"),
    ("run HERE/broken.toml", 2, "broken.toml"),
    ("run CONFIG --limit 0", 2, "--limit"),
    ("run CONFIG --limit many", 2, "--limit"),
    ("run CONFIG --limit 3", 2, "limit"),
    ("run CONFIG --models third", 2, "third"),
    ("run CONFIG --suites Occugender", 2, "OccuGender"),
    ("run CONFIG --until later", 2, "decided"),
    ("run CONFIG --baseline old", 2, "--until decided"),
    ("compare first first --db CONFIG", 2, "the same model twice"),
    ("compare first third --db CONFIG", 2, "third"),
    ("compare first --db CONFIG", 2, "'b'"),
    ("show nothing --db CONFIG", 2, "nothing"),
    ("show", 2, "figure_id"),
    ("report --run x --db CONFIG", 2, "--run"),
    ("report nothing --db CONFIG", 2, "0 runs match"),
    ("report --format word --db CONFIG", 2, "html, certificate"),
    ("report --db HERE/empty.py", 2, "Audit"),
    ("report --db HERE/text.db", 2, "text.db"),
    ("export items.xlsx --db CONFIG", 2, ".jsonl"),
    ("export logs --for excel --db CONFIG", 2, "lm-eval"),
    ("export i.jsonl --suite MGBR --db CONFIG", 2, "Known: OccuGender"),
    ("log-to excel --db CONFIG", 2, "mlflow"),
    ("baseline save --db CONFIG", 2, "name"),
    ("gate --baseline nowhere --db CONFIG", 2, "nowhere"),
    ("gate --baseline HERE/text.db --db CONFIG", 2, "not a report.json"),
    ("history --html HERE --db CONFIG", 1, "HERE"),
    ("ls nonsense --db CONFIG", 2, "runs, models, suites"),
    ("schedule CONFIG --on-regression true", 2, "--baseline"),
    ("cache explain nothing --db CONFIG", 2, "nothing"),
    ("cache backup HERE/a.db --db CONFIG", 2, "already exists"),
    ("plan CONFIG --detect much", 2, "--detect"),
    ("view --port 99999 --db CONFIG", 2, "--port"),
    ("probe nowhere --model m", 2, "nowhere"),
    ("check CONFIG --suite OccuGender", 2, "a config is given as well"),
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("audit = (")
    (folder / "broken.toml").write_text("models = [")
    (folder / "text.db").write_text("no store " * 200)
    (folder / "config.py").write_text(
        "from audit import Audit\nfrom backends import FakeBackend\nfrom suites import OccuGender\n"
        f"audit = Audit({{'first': FakeBackend('first'), 'second': FakeBackend('second')}}, "
        f"[OccuGender(('implicit',))], db={str(folder / 'a.db')!r}, out={str(folder / 'out')!r}, limit=100)\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["run", str(folder / "config.py")])
    assert not left.value.code
    return folder


@pytest.mark.parametrize(("line", "code", "says"), MISTAKES, ids=[line[:50] for line, *_ in MISTAKES])
def test_a_mistake_is_told_and_not_thrown(line: str, code: int, says: str, here: Path, capsys: Any) -> None:
    arguments = [a.replace("CONFIG", str(here / "config.py")).replace("HERE", str(here)) for a in line.split()]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    told = capsys.readouterr()
    said = (told.err or told.out).replace("\n", " ")
    assert left.value.code == code, said
    assert says.replace("HERE", str(here)) in said
    assert "Traceback" not in said
    assert len(told.err) < 2000


def test_a_port_that_is_taken_is_a_mistake_not_a_regression(here: Path, capsys: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit) as left:
            main(["view", "--db", str(here / "config.py"), "--port", str(taken.getsockname()[1]), "--no-open"])
    told = capsys.readouterr()
    assert left.value.code == 2
    assert "--port" in told.err
    assert "is shown" not in told.out


class FullDisk:
    """A file that opens, and cannot be written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def full_disk(path: Path, *_: Any, **more: Any) -> FullDisk:
    return FullDisk(path.open("w", **more))


@pytest.mark.parametrize("line", ["report --db CONFIG --out OUT", "export OUT/items.jsonl --db CONFIG"])
def test_a_full_disk_is_named_and_nothing_is_left(
    line: str, here: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.files.open", full_disk, raising=False)
    arguments = [a.replace("CONFIG", str(here / "config.py")).replace("OUT", str(tmp_path)) for a in line.split()]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    told = capsys.readouterr().err
    assert left.value.code == 1
    assert told.startswith(f"Error: {tmp_path}")
    assert "No space left" in told
    assert list(tmp_path.rglob("*.*")) == []
