"""A config of two planted models, and a way to run commands."""

import shutil
import textwrap

import pytest

from audit.cli import main

CONFIG = """
from audit import Audit
from backends.stand_ins.fake import FakeBackend, Faults, PlantedBias
from suites import OccuGender

audit = Audit(
    {{"first": FakeBackend("first"{options}), "second": FakeBackend("second")}},
    [OccuGender(("implicit",))],
    db={db!r}, out={out!r}, limit=100, limits={{"p_diverse": (0.0, 0.99)}},
)
"""


@pytest.fixture
def audit(capsys):
    """Run a command: (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        printed = capsys.readouterr()
        return left.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def config(tmp_path):
    def write(options=""):
        path = tmp_path / "config.py"
        places = {"db": str(tmp_path / "a.db"), "out": str(tmp_path / "out")}
        path.write_text(textwrap.dedent(CONFIG).format(options=options, **places))
        return path

    return write


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder in which the config of the two models was run."""
    folder = tmp_path_factory.mktemp("finished")
    path = folder / "config.py"
    path.write_text(textwrap.dedent(CONFIG).format(options="", db=str(folder / "a.db"), out=str(folder / "out")))
    with pytest.raises(SystemExit) as left:
        main(["run", str(path)])
    assert not left.value.code
    return folder


@pytest.fixture
def ran(config, finished, tmp_path):
    """The config, its store and its report, as after a run: made once, copied for each test."""
    shutil.copy(finished / "a.db", tmp_path)
    shutil.copytree(finished / "out", tmp_path / "out")
    return config()
