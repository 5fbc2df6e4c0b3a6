"""The pages of `audit view`: what they show of a store, and what they refuse."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from audit import Audit, StoredResult
from audit.report.view.app import view_app
from audit.report.view.browse import PAGE
from audit.store import Store
from backends import FakeBackend, PlantedBias
from suites import OccuGender

HOSTILE = "<script>alert(1)</script>"
WORDS = OccuGender(("implicit",)).expressions["implicit"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StoredResult:
    folder = tmp_path_factory.mktemp("view")
    planted = PlantedBias(lambda _: {"female": 0.6, "male": 0.3, "diverse": 0.1}, WORDS)
    models = {"org/planted": FakeBackend("planted", score=planted), HOSTILE: FakeBackend("even")}
    suites = [OccuGender(("implicit",))]
    return Audit(models, suites, title=HOSTILE, db=folder / "a.db", out=folder / "out", limit=100).run_sync()


@pytest.fixture(scope="module")
def store(result: StoredResult) -> Iterator[Store]:
    with Store.open(result._db, read_only=True) as opened:
        yield opened


async def get(store: Store, path: str, host: str = "127.0.0.1:8321", method: str = "GET") -> httpx.Response:
    transport = httpx.ASGITransport(view_app(store, lambda: "the trend"), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.request(method, path)


async def test_runs_and_the_trend_are_shown(store: Store, result: StoredResult) -> None:
    assert result.run_id in (await get(store, "/")).text
    assert (await get(store, "/trend")).text == "the trend"
    run = (await get(store, f"/run/{result.run_id}")).text
    assert '<p class="verdict">org/planted stays within 2 points of neutral.</p>' in run
    report = (await get(store, "/run/last/report")).text
    assert "data-plot" in report
    assert '<a href="/">All runs</a>' in report


async def test_items_stand_beside_each_other_page_by_page(store: Store, result: StoredResult) -> None:
    first = (await get(store, "/run/last/suite/OccuGender")).text
    assert f"Items 1 to {PAGE}" in first
    assert "60 %" in first
    assert 'rel="next"' in first
    last = (await get(store, "/run/last/suite/OccuGender?page=3")).text
    assert "Items 91 to 100" in last
    assert 'rel="next"' not in last
    alone = (await get(store, "/run/last/suite/OccuGender?model=org/planted")).text
    assert alone.count('<th scope="col"><bdi>') == 1


async def test_a_search_finds_every_item_with_the_words(store: Store, result: StoredResult) -> None:
    frame = result.items_df()
    asked = frame[(frame.model == "org/planted") & frame.p_female.notna()]
    name = asked.occupation.iloc[0]
    found = (await get(store, f"/run/last/suite/OccuGender?q={name}&model=org/planted")).text
    assert found.count("/item/") == min(PAGE, (asked.occupation == name).sum())
    assert "No item contains" in (await get(store, "/run/last/suite/OccuGender?q=zzzz")).text


async def test_an_item_shows_prompt_and_log_probabilities(store: Store, result: StoredResult) -> None:
    with Store.open(result._db, read_only=True) as own:
        stored = next(iter(own.runs.read_rows(result.run_id, "org/planted", "OccuGender")))
        answer = own.answers.inspect(stored.keys[0])
    page = (await get(store, f"/run/last/suite/OccuGender/item/{stored.row.item_id}")).text
    assert str(answer["prompt"])[:40] in page
    assert page.count("Log-probability (nats)") == 2


@pytest.mark.parametrize(
    "path", ["/", "/run/last", "/run/last/suite/OccuGender", "/run/last/suite/OccuGender?q=<script>"]
)
async def test_hostile_names_are_shown_and_not_obeyed(store: Store, path: str) -> None:
    answer = await get(store, path)
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert "form-action &#39;self&#39;" in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/run/nothing", 404),
        ("/run/last/suite/MGBR", 404),
        ("/run/last/suite/OccuGender/item/none", 404),
        ("/run/last/suite/OccuGender?page=-1", 200),
        ("/run/last/suite/OccuGender?page=9999", 200),
        ("/elsewhere", 404),
    ],
)
async def test_what_is_not_there_is_said(store: Store, path: str, status: int) -> None:
    answer = await get(store, path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


async def test_only_this_machine_asks_and_only_to_read(store: Store, result: StoredResult) -> None:
    before = hash_of(result)
    assert (await get(store, "/", host="evil.example")).status_code == 400
    for method in ("POST", "PUT", "DELETE"):
        assert (await get(store, "/", method=method)).status_code == 405
    assert hash_of(result) == before


def hash_of(result: StoredResult) -> bytes:
    return hashlib.sha256(result._db.read_bytes()).digest()
