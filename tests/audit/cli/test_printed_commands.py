"""Every command that the tool prints runs as it is pasted."""

import html
import json
import re
import shlex


def printed(text, page):
    """The commands at a run's or a gate's end, in a report, and in the dialog of its first figure."""
    yield from re.findall(r"^  (audit .+)", text, re.M)
    yield from map(html.unescape, re.findall(r"<code>(audit [^<]+)</code>", page))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    yield f"audit show {data['figures']['rows'][0][0]} --run {data['run']}{data['store']}"


def test_the_commands_of_a_run_a_report_and_a_gate_run(audit, config, tmp_path, monkeypatch):
    path, page = config(), tmp_path / "out" / "report.html"
    path.write_text(path.read_text().replace("0.99", "0.01"))  # a limit is broken, so that the report says how to look
    monkeypatch.chdir(tmp_path)
    text, ran = audit("run", path)[1] + audit("gate", "--db", path)[1], set()
    for _ in range(2):  # of a sample; then of the whole, which one of the commands runs
        found = set(printed(text, page.read_text("utf-8"))) - ran
        for command in sorted(found, key=lambda command: "gate" in command):  # its baseline is saved before
            code, _, err = audit(*shlex.split(command)[1:])
            assert code in (0, 3), (command, err)
        ran |= found
    assert {"compare", "show", "baseline", "run", "gate"} <= {shlex.split(command)[1] for command in ran}


def test_the_commands_of_parts_run(audit, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = config()
    for number in (1, 2):
        text = audit("run", path, "--shard", f"{number}/2", "--db", tmp_path / f"{number}.db")[1]
    for command in re.findall(r"^  (audit .+)", text, re.M):
        words = command.replace("OTHER-PARTS.db", "1.db").split()[1:]
        assert audit(*words)[0] == 0, command
