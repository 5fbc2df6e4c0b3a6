"""A report's folder holds the files of one run."""

from audit.report import write_report
from tests.audit.report import made_up as mu


def reports():
    """Two runs."""
    one = mu.result(("a", "b"), [mu.toy_suite()], mu.toy_measures(("a", "b")))
    return one, one.model_copy(update={"run_id": "run-2"})


def test_another_runs_files_do_not_stay_unless_somebody_changed_them(tmp_path):
    one, two = reports()
    files = write_report(one, tmp_path)
    for name in ("notes.md", "trend.html"):
        (tmp_path / name).write_text("mine")
    files["markdown"].write_text("edited by hand")
    write_report(two, tmp_path, formats=["json"])
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        ".report-files", "notes.md", "report.json", "report.md", "trend.html",
    ]  # fmt: skip


def test_a_folder_without_a_list_is_written_to(tmp_path):
    """Of an earlier version, or with a damaged list."""
    one, _ = reports()
    (tmp_path / ".report-files").write_text("{")
    assert write_report(one, tmp_path, formats=["json"])["json"].exists()
