"""A report's folder holds the files of one run."""

from audit.report import write_report
from tests.audit.report import made_up as mu


def reports():
    """A run of one model, and a later one of two."""
    models = ("model 0 (engine)", "model 1 (engine)")
    both = (mu.result(some, [mu.toy_suite()], mu.toy_measures(some)) for some in (models[:1], models))
    one, two = (result.model_copy(update={"run_id": f"run-{n}"}) for n, result in enumerate(both, 1))
    return one, two


def test_another_runs_files_do_not_stay(tmp_path):
    one, two = reports()
    write_report(one, tmp_path)
    assert (tmp_path / "model_card.md").exists()
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "trend.html").write_text("of all runs")
    write_report(two, tmp_path)
    assert not (tmp_path / "model_card.md").exists(), "of a model that this run did not ask"
    assert len(list((tmp_path / "model_cards").iterdir())) == 2
    assert (tmp_path / "notes.md").exists()
    assert (tmp_path / "trend.html").exists()
    write_report(one, tmp_path)
    assert (tmp_path / "model_card.md").exists()
    assert list((tmp_path / "model_cards").iterdir()) == []


def test_a_file_that_somebody_changed_stays(tmp_path):
    one, two = reports()
    card = write_report(one, tmp_path)["card"]
    card.write_text("edited by hand")
    write_report(two, tmp_path)
    assert card.read_text() == "edited by hand"


def test_no_certificate_names_the_hash_of_another_runs_json(tmp_path):
    one, two = reports()
    files = write_report(two, tmp_path)
    write_report(one, tmp_path, formats=["json"])
    assert files["json"].exists()
    assert not files["certificate"].exists()


def test_a_folder_without_a_list_is_written_to(tmp_path):
    """Of an earlier version, or with a damaged list."""
    one, _ = reports()
    (tmp_path / ".report-files").write_text("{")
    assert write_report(one, tmp_path, formats=["json"])["json"].exists()
