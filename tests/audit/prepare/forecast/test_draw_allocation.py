"""From a pilot of drawn answers to the number of items and draws."""

import math
import shutil
import zlib

import numpy as np
import pytest
from typer.testing import CliRunner

from audit import Audit
from audit.cli.app import app
from audit.prepare.forecast import allocate_draws
from audit.prepare.forecast.draw_allocation import _narrowest, _Tried
from audit.prepare.forecast.redrawn import DrawnItem, draw_errors
from audit.report.phrases.checks.forecast import allocation_text
from backends.base import ContinuationScore, ScoreRequest, ScoreResponse
from backends.errors import ConfigError
from backends.stand_ins.fake import FakeBackend, PlantedBias
from suites import OccuGender
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row
from tests.audit.run.test_until_decided import uniform


def share(of, samples):
    return ContinuationScore(math.log(of) if of else None, None, 0.0, "sampled", "clean", (), "sampled", samples)


class TwoWords:
    """Reads the gap between the shares of two words among the answers that say either."""

    def read(self, item, answer):
        a, b = (0.0 if s.logprob is None else math.exp(s.logprob) for s in answer.scores)
        value = (a - b) / (a + b) if a + b else None
        return Row(item.id, item.factors, {"gap": IdentifiedInterval(value, -1.0, 1.0)})


def drawn(shares, samples=1000, words=("Male", "Female")):
    answer = ScoreResponse(tuple(share(of, samples) for of in shares))
    return [DrawnItem(Item(str(n), ScoreRequest("?", words), {"o": n}), answer, samples) for n in range(150)]


GAP = MeasureSpec("gap", "gap", clusters=("o",), neutral=0.0, kind="difference")


def test_redrawn_gaps_vary_as_binomials_do():
    (one, four) = draw_errors(TwoWords(), GAP, drawn([0.7, 0.3]), (1, 4))
    for found in (one, four):
        assert found.within == pytest.approx(4 * 0.7 * 0.3 / found.draws, rel=0.06)
        assert found.missing == 0.0


def test_a_small_pilots_own_error_is_put_back():
    # 2 draws a question from 0.5: half of them say one word alone, and would seem to vary not at all
    random, p = np.random.default_rng(0), 0.5
    items = []
    for n in range(3000):
        first = random.binomial(2, p) / 2
        items += [
            one._replace(item=Item(str(n), one.item.request, {"o": n})) for one in drawn([first, 1 - first], 2)[:1]
        ]
    (found,) = draw_errors(TwoWords(), GAP, items, (4,))
    assert found.within == pytest.approx(4 * p * (1 - p) / 4, rel=0.25)


def test_questions_without_a_named_group_are_counted():
    for found in draw_errors(TwoWords(), GAP, drawn([0.3, 0.2]), (1, 2, 3)):
        assert found.missing == pytest.approx(0.5**found.draws, abs=0.05)


def test_a_pilot_tells_what_fewer_draws_leave_without_a_value():
    # 4 draws a question, of which 0.9 name a group: resampling them would leave 0.0048 instead of 0.001 without one
    random, items = np.random.default_rng(0), []
    for n in range(150):
        named = random.binomial(4, 0.9) / 4
        items += [
            drawn([named, 0.0], 4)[0]._replace(item=Item(str(n), ScoreRequest("?", ("Male", "Female")), {"o": n}))
        ]
    one, two, three, eight = draw_errors(TwoWords(), GAP, items, (1, 2, 3, 8))
    assert one.missing == pytest.approx(0.1, abs=0.03)
    assert two.missing == pytest.approx(0.01, abs=0.01)
    assert eight.missing <= three.missing <= 0.003


def test_an_answer_that_begins_with_two_words_is_one_answer():
    (found,) = draw_errors(TwoWords(), GAP, drawn([1.0, 0.4], words=("Gender", "Gender neutral")), (5,))
    assert found.missing == 0.0
    # Every set counts all answers for "Gender": the gap is (1 - b) / (1 + b), b the share of "Gender neutral".
    b = np.arange(6) / 5
    weights = [math.comb(5, k) * 0.4**k * 0.6 ** (5 - k) for k in range(6)]
    gaps = (1 - b) / (1 + b)
    assert found.within == pytest.approx(
        np.average(gaps**2, weights=weights) - np.average(gaps, weights=weights) ** 2, rel=0.06
    )


PRONOUNS = {"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}
SUITE = OccuGender(("implicit",))
FEMALE = {o.name for o in SUITE.occupations if o.dominated_by == "female"}
NAMES = sorted((o.name for o in SUITE.occupations), key=len, reverse=True)


def groups(prompt):
    """A gap of 0.25 on average, which varies with the occupation and the question."""
    job = next(job for job in NAMES if job in prompt)
    gap = 0.25 + 0.08 * uniform(job) + 0.15 * uniform(prompt)
    stereotyped, other = (0.5 + gap) / 2, (0.5 - gap) / 2
    male, female = (other, stereotyped) if job in FEMALE else (stereotyped, other)
    return {"male": male, "female": female, "diverse": 0.5}


class Drawn(FakeBackend):
    """A model whose answers are drawn and counted."""

    def __init__(self, samples):
        super().__init__(f"drawn{samples}", score=PlantedBias(groups, PRONOUNS, 0.95), batch_size=500)
        self.samples = samples

    async def run(self, batch):
        return [self._drawn(request, answer) for request, answer in zip(batch, await super().run(batch), strict=True)]

    def _drawn(self, request, answer):
        random = np.random.default_rng(zlib.crc32(f"{request.prompt} {self.samples}".encode()))
        shares = np.exp([score.logprob for score in answer.scores])
        counts = random.multinomial(self.samples, [*shares, 1 - shares.sum()])[:-1]
        return ScoreResponse(tuple(share(count / self.samples, self.samples) for count in counts))


def drawn_audit(folder, samples, **options):
    return Audit({"m": Drawn(samples)}, [SUITE], db=folder / "a.db", out=folder / "out", **options)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    audit = drawn_audit(tmp_path_factory.mktemp("pilot"), 4)
    audit.only(limit=240).run_sync()
    return audit


def test_the_planned_width_is_reached(pilot, tmp_path):
    (advice,) = allocate_draws(pilot, within=0.04).allocations
    assert advice.without_draws < advice.half_width <= 0.04
    assert (advice.of_items, advice.of_draws) == (1000, 4)
    result = drawn_audit(tmp_path, advice.draws, limit=advice.items).run_sync()
    (gap,) = [m for m in result.measures if m.spec.primary and m.measure == "stereotype_gap"]
    assert (gap.sampling_high - gap.sampling_low) / 2 == pytest.approx(advice.half_width, rel=0.25)
    assert gap.sampling_low < 0.25 < gap.sampling_high


def test_a_budget_is_kept_and_more_of_it_is_better(pilot):
    (little,), (much,) = (allocate_draws(pilot, budget=budget).allocations for budget in (300, 1500))
    assert little.items * little.draws - little.paid <= 300
    assert 0.9 * 1500 < much.items * much.draws - much.paid <= 1500
    assert much.items > 300, "not few items drawn often, which would be as narrow if items were alike"
    assert little.half_width > 1.15 * much.half_width
    (again,) = allocate_draws(pilot, within=much.half_width).allocations
    assert again.items * again.draws - again.paid == pytest.approx(1500, rel=0.25)


def test_a_pilots_answers_count_with_as_many_draws(pilot, tmp_path):
    """They are stored under the same key, so that the run that follows does not pay for them again."""
    plan = allocate_draws(pilot, budget=3040)
    (one,) = plan.allocations
    assert (one.items, one.draws, one.paid) == (1000, 4, 960)
    assert "960 of them are the pilot's" in allocation_text(plan)
    shutil.copy(pilot.db, tmp_path / "a.db")
    (model,) = drawn_audit(tmp_path, 4).run_sync().models
    assert (model.cached, model.asked) == (240, 760)


def test_a_budget_does_not_throw_the_pilots_draws_away():
    anew, with_the_pilots = _Tried(1000, 3, 0.0440, 0.0, 0), _Tried(930, 4, 0.0447, 0.0, 640)
    assert _narrowest([anew, with_the_pilots], 3080) == with_the_pilots
    assert _narrowest([anew, with_the_pilots._replace(half_width=0.046)], 3080) == anew, "not at any price"


def test_what_no_draws_reach_is_said(pilot):
    plan = allocate_draws(pilot, within=0.001)
    (one,) = plan.allocations
    assert (one.items, one.draws) == (None, None)
    assert one.half_width == one.without_draws > 0.001
    assert "no number of draws is enough" in allocation_text(plan)


def test_a_pilot_without_draws_is_refused(tmp_path):
    audit = Audit({"m": FakeBackend("m")}, [OccuGender(("implicit",))], db=tmp_path / "a.db", out=tmp_path, limit=120)
    with pytest.raises(ConfigError, match="no such store"):
        allocate_draws(audit, within=0.03)
    audit.run_sync()
    with pytest.raises(ConfigError, match="two or more drawn answers"):
        allocate_draws(audit, within=0.03)
    with pytest.raises(ConfigError, match="not above 0"):
        allocate_draws(audit, within=0.0)


def test_plan_takes_one_wish(tmp_path):
    config = tmp_path / "a.py"
    config.write_text(
        "from audit import Audit\nfrom backends import FakeBackend\nfrom suites import OccuGender\n"
        f"audit = Audit({{'m': FakeBackend('m')}}, [OccuGender()], db={str(tmp_path / 'a.db')!r})\n"
    )
    found = CliRunner().invoke(app, ["plan", str(config), "--detect", "0.1", "--within", "0.03"])
    assert found.exit_code != 0
    assert "only one goal can be planned for" in str(found.exception or found.output)
