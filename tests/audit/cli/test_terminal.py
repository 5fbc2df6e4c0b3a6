"""What reaches a terminal, and how the command ends when it is stopped early."""

import contextlib
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from audit.cli import main


def test_text_that_the_encoding_lacks_does_not_end_the_run(config, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-m", "audit.cli", "run", config()], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"Report: " in done.stdout
    assert b"\\u2" not in done.stdout, "a minus sign before digits would read as a number"


def test_a_run_without_answers_is_no_baseline(audit, config):
    path = config(", faults=Faults(1, ('unsupported',), permanent=True)")
    code, out, _ = audit("run", path, "--models", "first")
    assert (code, "No model gave an answer" in " ".join(out.split())) == (1, True)
    assert "Next:" not in out
    code, _, err = audit("baseline", "save", "released", "--db", path)
    assert (code, "no readable answer" in err) == (2, True)
    assert audit("run", path, "--models", "second")[0] == 0
    assert audit("baseline", "save", "released", "--db", path)[0] == 0
    audit("run", path, "--models", "first")
    assert audit("baseline", "promote", "released", "--db", path)[0] == 2


def test_a_baseline_needs_a_name(audit, ran):
    for name in ("  ", "a\x1bb"):
        code, _, err = audit("baseline", "save", name, "--db", ran)
        assert code == 2
        assert "not a name" in err
        assert "\x1b" not in err


def test_a_closed_pipe_ends_a_command_quietly(ran):
    reader, pipe = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "audit.cli", "history", "--db", ran],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(pipe)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_gate_fits_a_terminal_and_is_markdown_in_a_pipe(audit, ran):
    path = ran
    audit("baseline", "save", "first", "--db", path)
    assert audit("gate", "--db", path)[1].startswith("# Gate ")
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "audit.cli", "gate", "--baseline", "first", "--db", path]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdout=theirs, env=environment):
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # Linux: the other side is closed
            while block := os.read(terminal, 4096):
                printed += block
    os.close(terminal)
    lines = printed.decode().splitlines()
    assert lines[0].startswith("Gate ")
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80


INTERRUPTED_IMPORT = """
import signal, sys
from audit.cli import main

class Interrupting:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main(["--help"])
"""


def test_ctrl_c_while_it_starts_ends_quietly():
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT, "audit.cli.run"], capture_output=True)
    assert (ended.returncode, ended.stderr) == (130, b"Interrupted.\n")


def stored_answers(path):
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return db.execute("SELECT count(*) FROM answers").fetchone()[0]
    return 0


def test_a_closed_terminal_ends_a_run_with_grace(config, tmp_path):
    path = config(", latency=1.0, batch_size=1")
    started = subprocess.Popen(
        [sys.executable, "-m", "audit.cli", "run", path],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # these tests may run under nohup
    )
    assert started.stderr is not None
    while not stored_answers(tmp_path / "a.db"):  # then the run's own handler is in place
        time.sleep(0.05)
        assert started.poll() is None
    started.stderr.close()  # as a closed terminal does
    started.send_signal(signal.SIGHUP)
    started.send_signal(signal.SIGHUP)
    assert started.wait(60) == 130
    with pytest.raises(SystemExit) as left:
        main(["ls", "runs", "--db", str(path)])
    assert left.value.code in (0, None)


def test_files_of_a_run_are_their_owners_alone(audit, config, tmp_path):
    audit("run", config())
    written = [p for p in tmp_path.rglob("*") if p.suffix not in (".py", ".pyc") and p.name != "__pycache__"]
    files, folders = ([p for p in written if p.is_file() is of] for of in (True, False))
    assert len(files) > 5
    assert {oct(p.stat().st_mode & 0o777) for p in files} == {"0o600"}
    assert {oct(p.stat().st_mode & 0o777) for p in folders} == {"0o700"}
