"""Whether drawn tokens fit the probabilities that a server lists: the statistics, without any requests.

Four statistics are compared with their simulated distribution under the listed probabilities, so that small counts
need no approximation. Two of the listed draws, given how many there are: G (the likelihood ratio against any other
distribution) and the mean listed log-probability (sensitive to another temperature or base). Two of the draws outside
the list (sensitive to lists that were renormalised, filtered or padded): how many, and G of how many at each place. A
few of those are allowed where the list leaves nothing over, and none are demanded: a model may be sure of its answer.
The p-value is the smallest of the four, times four (Bonferroni).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backends.openai.scoring.censoring import last_rank
from backends.openai.scoring.top_logprobs import TopLogprobs

#: Simulations; more of them where the p-value from those is below the last.
_SIMULATED, _SIMULATED_AGAIN, _SMALL = 2000, 20_000, 0.05
#: Perturbed lists whose mean stands for them where a place has one draw.
_PERTURBED = 500
#: Allowed probability of a draw outside the list: tokens whose text is not as listed, however rare.
STRAY = 0.005
#: A twin with another space, as likely as the last listed, shows in a run's 3,000 draws if its square is more than this
#: share of the text's own probability.
_TWIN = 3e-5
#: So many texts with a space around them are expected in draws before their absence says that spaces are cut off.
_SOME_SPACED = 3
#: How many tokens may differ in the spaces around one text.
_SPACINGS = 4
#: A text, and one behind a space, where nothing shows whether a server cuts that off.
WITH_TWIN = 2
#: How many listed texts have a cell of their own, likeliest first.
_OWN_CELLS = 50
#: The text of a special token, which is never drawn.
_SPECIAL = re.compile(r"<[^<>]*>|\[[A-Z_]+\]")
#: How many entries of a list that came with a draw are kept.
_LISTED_WITH_A_DRAW = 100
#: Expected draws from which on a text is tested by itself, and λ of Chernoff's bound.
_LEAST_EXPECTED, _TILTS = 1.0, np.geomspace(0.02, 4, 40)
#: Standard errors by which a lie must move a statistic to be detected 19 times in 20 at the first level.
_SEEN_AT = 4.4


@dataclass(frozen=True)
class Place:
    """One prompt: the probability of each listed text, the texts drawn after it, and those that are audited.

    ``bound``: the highest probability of a text that is not listed, if known. ``unclear``: texts that
    the list holds in a form that does not identify them, so that they have no such bound. ``trimmed``: the place of
    texts without surrounding spaces, for a server that may cut them off what it writes. ``spellings``: how many
    unlisted tokens may be drawn as one text. ``is_rich``: its prompt is long, or has what plain ones lack.
    """

    listed: Mapping[str, float]
    drawn: Sequence[str]
    audited: Collection[str] = ()
    bound: float | None = None
    unclear: Collection[str] = ()
    trimmed: Place | None = None
    spellings: int = 1
    is_rich: bool = False

    @property
    def n(self) -> int:
        """How many draws there are."""
        return len(self.drawn)


@dataclass(frozen=True, slots=True)
class Unseen:
    """The largest lies that this number of draws would probably not detect.

    Attributes
    ----------
    colder, hotter : float
        True temperatures of lists that claim temperature 1.
    factor : float
        By how much all listed probabilities may be too high or too low.
    """

    colder: float
    hotter: float
    factor: float


def listed_texts(top: TopLogprobs, *, trimmed: bool) -> dict[str, float]:
    """The probability of each text that a list identifies; ``trimmed`` for answers without surrounding spaces."""
    found: dict[str, float] = {}
    for token in top.tokens:
        text = token.text.strip() if trimmed else token.text
        if is_readable(text) and top.identifies(token):
            found[text] = found.get(text, 0.0) + math.exp(token.logprob)
    return found


def is_readable(text: str) -> bool:
    """Whether a text shows which token it is: not part of a character, nor a special token."""
    return bool(text) and "�" not in text and not _SPECIAL.fullmatch(text.strip())


def listed_place(top: TopLogprobs, *, trimmed: bool, drawn: Sequence[str] = ()) -> Place:
    """The place of a list; the texts are as in `listed_texts`."""
    listed = listed_texts(top, trimmed=trimmed)
    if trimmed:
        listed = _without_hidden_twins(top, listed)
    texts = {token.text.strip() if trimmed else token.text for token in top.tokens}
    bound = math.exp(last_rank(top)) * (_SPACINGS if trimmed else 1)
    return Place(listed, drawn, bound=min(bound, 1.0), unclear=texts - listed.keys())


def chat_place(top: TopLogprobs) -> Place:
    """The place of a chat's list, whose answers may be without surrounding spaces."""
    own = listed_place(top, trimmed=False)
    return dataclasses.replace(own, trimmed=listed_place(top, trimmed=True), spellings=WITH_TWIN)


def with_draws(places: Sequence[Place], drawn: Sequence[Sequence[str]]) -> list[Place]:
    """The places with what was drawn at each; trimmed if the server cuts spaces off: if none comes where some must.

    Chats alone show that: a server that trims their answers may leave the spaces of a completed text.
    """
    chats = [(place, texts) for place, texts in zip(places, drawn, strict=True) if place.trimmed is not None]
    spaced = math.fsum(
        len(texts) * math.fsum(p for text, p in place.listed.items() if text != text.strip()) for place, texts in chats
    )
    none_spaced = all(text == text.strip() for _, texts in chats for text in texts)
    cuts = spaced > _SOME_SPACED and none_spaced
    found = []
    for place, texts in zip(places, drawn, strict=True):
        if cuts and place.trimmed is not None:
            audited = {text.strip() for text in place.audited}
            trimmed = dataclasses.replace(place.trimmed, audited=audited, is_rich=place.is_rich)
            found.append(dataclasses.replace(trimmed, drawn=[text.strip() for text in texts]))
        else:
            found.append(dataclasses.replace(place, drawn=texts, spellings=place.spellings if none_spaced else 1))
    return found


def _without_hidden_twins(top: TopLogprobs, listed: Mapping[str, float]) -> dict[str, float]:
    """Those trimmed texts to which an unlisted token can add little: a drawn " Male" is read as the listed "Male"."""
    spelt = Counter(text.strip() for text in {token.text for token in top.tokens})
    last = math.exp(last_rank(top))
    return {text: p for text, p in listed.items() if spelt[text] > 1 or last**2 <= _TWIN * p}


def drawn_place(drawn: str, top: TopLogprobs, audited: Collection[str] = ()) -> Place:
    """The place of a token that was drawn beside a list, with the likeliest entries of that list."""
    place = listed_place(top.likeliest(_LISTED_WITH_A_DRAW), trimmed=False, drawn=(drawn,))
    return dataclasses.replace(place, audited=audited)


def p_value(places: Sequence[Place], *, noise: float) -> float:
    """The probability of draws that fit their lists as badly as these, or worse, if the lists are true.

    ``noise``: nats by which repeated lists differ; the simulated draws come from lists perturbed by as much.
    """
    return _simulated_p_value(_all_draws_p_value, places, noise)


def rich_p_value(places: Sequence[Place], *, noise: float) -> float:
    """`p_value` of the rich prompts alone: among plain ones, a lie about the others hardly shows."""
    return p_value([place for place in places if place.is_rich], noise=noise)


def _simulated_p_value(
    test: Callable[[Sequence[Place], float, int], float], places: Sequence[Place], noise: float
) -> float:
    """``test`` of the places with draws, with more simulations if few suffice to doubt the lists."""
    drawn = [place for place in places if place.n]
    p = test(drawn, noise, _SIMULATED)
    return p if p >= _SMALL else test(drawn, noise, _SIMULATED_AGAIN)


def _all_draws_p_value(places: Sequence[Place], noise: float, simulations: int) -> float:
    random = np.random.default_rng(len(places))
    listed, simulated = np.zeros(2), np.zeros((simulations, 2))
    outside, fewest, most = np.zeros(2), np.zeros((simulations, 2)), np.zeros((simulations, 2))
    for place in places:
        cells = _Cells.of(place)
        counts = cells.counts(place)
        n_listed = int(counts[:-1].sum())
        own, least, largest = cells.simulated(place.n, n_listed, noise, simulations, random)
        listed += cells.statistics(counts[None, :-1])[0]
        outside += cells.outside_statistics(place.n, counts[None, -1])[0]
        simulated += own
        fewest += least
        most += largest
    center = simulated[:, 1].mean()
    slack = 1e-9  # rounding must not tell equal values apart
    as_bad = (
        (simulated[:, 0] >= listed[0] - slack).sum(),
        (np.abs(simulated[:, 1] - center) >= np.abs(listed[1] - center) - slack).sum(),
        (most[:, 0] >= outside[0] - slack).sum(),
        2 * min((most[:, 1] >= outside[1]).sum(), (fewest[:, 1] <= outside[1]).sum()),
    )
    return float(min(1.0, len(as_bad) * (1 + min(as_bad)) / (1 + simulations)))


def pooled_p_value(places: Sequence[Place], *, noise: float) -> float:
    """As `p_value`, for the text whose total count over all places is furthest from what the lists predict.

    The probability of a text that many questions list, such as an audited word, may be slightly false in each.
    """
    return _simulated_p_value(_each_text_p_value, places, noise)


def _each_text_p_value(places: Sequence[Place], noise: float, simulations: int) -> float:
    random = np.random.default_rng(len(places))
    texts = {
        text: at for at, text in enumerate(dict.fromkeys(text for place in places for text in _Cells.of(place).texts))
    }
    observed, simulated = np.zeros(len(texts)), np.zeros((simulations, len(texts)))
    for place in places:
        cells = _Cells.of(place)
        own = [texts[text] for text in cells.texts]
        counts = cells.counts(place)
        moved, _ = cells.moved(noise, simulations, random)
        observed[own] += counts[: len(own)]
        simulated[:, own] += random.multinomial(int(counts[:-1].sum()), moved)[:, : len(own)]
    center = simulated.mean(0)
    error = np.sqrt(simulated.var(0) + 1)  # so that a single draw does not make a rare text the furthest
    distance = (np.abs(observed - center) / error).max(initial=0.0)
    as_bad = (np.abs(simulated - center) / error).max(1, initial=0.0) >= distance - 1e-9
    return float((1 + as_bad.sum()) / (1 + simulations))


def pooled_bound(places: Sequence[Place], *, noise: float) -> float:
    """As `pooled_p_value`, but an upper bound of it without simulation: for thousands of single draws, and tiny values.

    Where text t has probability p_i at place i, h hits have at most the chance
    min over λ of exp(-λ h) Π (1 + p_i (exp(λ) - 1)) (Chernoff, Ann. Math. Stat. 23, 1952), times the number of texts,
    and of sides. ``noise`` moves each p_i to where the hits are likelier.
    """
    events: dict[str, list[tuple[float, bool]]] = {}
    for place in places:
        for text, p in place.listed.items():
            events.setdefault(text, []).append((p, text in place.drawn))
    likely = [found for found in events.values() if math.fsum(p for p, _ in found) >= _LEAST_EXPECTED]
    bounds = [_log_bound(found, noise) for found in likely]
    left = [(_outside(place), place.listed.keys().isdisjoint(place.drawn)) for place in places]
    bounds.append(_log_bound(left, noise, least=STRAY))
    return min(1.0, 2 * len(bounds) * math.exp(min(bounds)))


def audited_bound(places: Sequence[Place], *, noise: float) -> float:
    """As `pooled_bound`, for the likeliest of the audited texts at each place, for all of them, and among them.

    A lie that hides, exaggerates or swaps what is audited moves another text at each place, but one of these the same
    way. Among them: as `likelihood_bound`, given that one of them was drawn.
    """
    together, among = [], []
    for place in places:
        listed = _audited(place)
        total = math.fsum(listed.values())
        shares = {text: p / total for text, p in listed.items()} if total > 0 else {}
        for drawn in place.drawn if listed else ():
            together.append((min(total, 1.0), drawn in listed))
            among += [Place(shares, (drawn,))] if drawn in shares else []
    counts = audited_level(min(_log_bound(likeliest_audited(places), noise), _log_bound(together, noise)))
    return min(1.0, counts, 2 * likelihood_bound(among, noise=noise))


def likeliest_audited(places: Sequence[Place]) -> list[tuple[float, bool]]:
    """For each draw, the listed probability of the likeliest audited text there, and whether it was drawn."""
    found = []
    for place in places:
        if listed := _audited(place):
            text = max(listed, key=lambda text: listed[text])
            found += [(listed[text], text == drawn) for drawn in place.drawn]
    return found


def audited_level(log_bound: float) -> float:
    """What one count of audited texts adds to `audited_bound`: two sides, two counts, and the texts among them."""
    return 8 * math.exp(log_bound)


def _audited(place: Place) -> dict[str, float]:
    return {text: place.listed[text] for text in place.audited if text in place.listed}


def likelihood_bound(places: Sequence[Place], *, noise: float) -> float:
    """As `p_value` for the log-probability of the listed draws, by Chernoff's bound: for thousands of single draws.

    ``noise``: each listed log-probability is off by itself, with half of it as standard deviation.
    """
    tilts = np.concatenate([_TILTS, -_TILTS])
    exponent = np.zeros(len(tilts))
    for place in places:
        texts = list(place.listed)
        listed = [at for at, text in enumerate(texts) if text in place.drawn]
        p = np.array([*place.listed.values()])
        if not listed or p.sum() <= 0:
            continue
        p = np.maximum(p / p.sum(), 1e-12)
        logs = np.log(p) - (p * np.log(p)).sum()
        drift = (noise / 2) ** 2 * ((p * np.abs(logs)).sum() * np.abs(tilts) + tilts**2 / 2 * ((p * logs) ** 2).sum())
        exponent += np.log(np.exp(np.outer(tilts, logs)) @ p) + drift - tilts * logs[listed[0]]
    return min(1.0, 2 * math.exp(min(float(exponent.min()), 0.0)))


def single_draws_bound(places: Sequence[Place], *, noise: float) -> float:
    """An upper bound on the p-value of single draws, by all three bounds together (Bonferroni)."""
    bounds = (pooled_bound, audited_bound, likelihood_bound)
    return min(1.0, len(bounds) * min(bound(places, noise=noise) for bound in bounds))


def _log_bound(events: Sequence[tuple[float, bool]], noise: float, least: float = 0.0) -> float:
    """Log of the chance of so many hits, or more, or fewer, among events of these chances; 0 at most.

    ``least``: the least chance of each, for more.
    """
    return count_bound(np.array([p for p, _ in events]), sum(hit for _, hit in events), noise, least)


def count_bound(chances: np.ndarray, hits: float, noise: float, least: float = 0.0) -> float:
    """As `_log_bound`, for a count of hits."""
    tilt = _TILTS[:, None]
    more = np.log1p(np.minimum(np.maximum(chances, least) * math.exp(noise), 1.0) * np.expm1(tilt)).sum(1)
    fewer = np.log1p(chances * math.exp(-noise) * np.expm1(-tilt)).sum(1)
    return min(float((more - _TILTS * hits).min()), float((fewer + _TILTS * hits).min()), 0.0)


def _outside(place: Place) -> float:
    """The probability that the list leaves over."""
    return max(1 - math.fsum(place.listed.values()), 0.0)


def entropy(listed: Mapping[str, float]) -> float:
    """Entropy over the listed texts, in nats; unlisted texts are ignored."""
    return -math.fsum(p * math.log(p) for p in listed.values() if p > 0)


def unseen(places: Sequence[Place]) -> Unseen:
    """The largest lies that draws from these lists would probably not detect."""
    information = inside = spread = 0.0
    for place in (p for p in places if p.n):
        probabilities = np.array([p for p in place.listed.values() if p > 0])
        mass = min(float(probabilities.sum()), 1.0)
        share = probabilities / probabilities.sum()
        logs = np.log(share)
        information += place.n * mass * float((share * logs**2).sum() - (share * logs).sum() ** 2)
        inside += place.n * mass
        spread += place.n * mass * (1 - mass)
    error = 1 / math.sqrt(information) if information > 0 else math.inf
    hottest = 1 - _SEEN_AT * error
    factor = _SEEN_AT * math.sqrt(max(spread, inside * STRAY)) / inside if inside else math.inf
    return Unseen(1 / (1 + _SEEN_AT * error), 1 / hottest if hottest > 0 else math.inf, 1 + factor)


@dataclass(frozen=True)
class _Cells:
    """The cells of one place: one per likely text, one for the other listed texts, and one for everything unlisted.

    ``probabilities`` and ``centred`` log-probabilities are those of the listed cells, given that one of them is drawn;
    ``left`` is the probability of the unlisted one.
    """

    texts: Sequence[str]
    probabilities: np.ndarray
    centred: np.ndarray
    left: float

    @classmethod
    def of(cls, place: Place) -> _Cells:
        listed = dict(sorted(place.listed.items(), key=lambda item: -item[1]))
        own = list(listed)[:_OWN_CELLS]
        rare = math.fsum([*listed.values()][_OWN_CELLS:])
        p = np.array([*(listed[text] for text in own), rare])
        p = p / p.sum() if p.sum() > 0 else np.ones(len(p)) / len(p)  # a list may name no readable text
        logs = np.log(np.maximum(p, 1e-12))
        return cls(own, p, logs - (p * logs).sum(), _outside(place))

    def counts(self, place: Place) -> np.ndarray:
        """How often each cell was drawn, the unlisted one last."""
        drawn = Counter(place.drawn)
        own = [drawn[text] for text in self.texts]
        rare = sum(n for text, n in drawn.items() if text in place.listed and text not in self.texts)
        return np.array([*own, rare, place.n - sum(own) - rare])

    def moved(self, noise: float, simulations: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Randomly perturbed probabilities: of the listed cells (simulations × cells), and of the unlisted one."""
        shape = (simulations, len(self.probabilities))
        if noise == 0:
            return np.broadcast_to(self.probabilities, shape), np.full(simulations, self.left)
        moved = self.probabilities * np.exp(random.normal(0, noise / 2, shape))
        total = moved.sum(1)
        left = self.left * np.exp(random.normal(0, noise / 2, simulations))
        return moved / total[:, None], left / (left + (1 - self.left) * total)

    def simulated(
        self, n: int, n_listed: int, noise: float, simulations: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`statistics` of ``n_listed`` simulated draws, and `outside_statistics` of ``n``: at fewest, and at most."""
        if n == 1:
            return self._simulated_single_draws(n_listed, noise, simulations, random)
        moved, left = self.moved(noise, simulations, random)
        fewest, most = (random.binomial(n, chance) for chance in (left, np.maximum(left, STRAY)))
        own = self.statistics(random.multinomial(n_listed, moved))
        return own, self.outside_statistics(n, fewest), self.outside_statistics(n, most)

    def _simulated_single_draws(
        self, n_listed: int, noise: float, simulations: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `simulated`, of one draw: looked up, since there are a thousand such places.

        One draw from a randomly perturbed list is one draw from the mean of such lists.
        """
        moved, left = self.moved(noise, min(simulations, _PERTURBED) if noise else 1, random)
        edges = moved.mean(0)[:-1].cumsum()
        of_each_cell = self.statistics(np.eye(len(self.probabilities)) * n_listed)
        own = of_each_cell[np.searchsorted(edges, random.random(simulations), side="right")]
        none_and_one = self.outside_statistics(1, np.arange(2))
        fewest, most = (
            none_and_one[(random.random(simulations) < chance.mean()).astype(int)]
            for chance in (left, np.maximum(left, STRAY))
        )
        return own, fewest, most

    def statistics(self, counts: np.ndarray) -> np.ndarray:
        """Rows of counts of the listed cells → rows of G and the sum of centred log-probabilities."""
        expected = counts.sum(1, keepdims=True) * self.probabilities
        return np.stack([_g(counts, expected).sum(1), counts @ self.centred], axis=1)

    def outside_statistics(self, n: int, outside: np.ndarray) -> np.ndarray:
        """How many of ``n`` draws are unlisted → rows of G against the nearest allowed probability, and that count."""
        allowed = np.clip(outside / n, self.left, max(self.left, STRAY))
        g = _g(outside, n * allowed) + _g(n - outside, n * (1 - allowed))
        return np.stack([g, outside.astype(float)], axis=1)


def _g(counts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The terms of G, the likelihood-ratio statistic."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 0, 2 * counts * np.log(counts / np.maximum(expected, 1e-12)), 0.0)


def at_temperature(place: Place, temperature: float) -> Place:
    """The place at another temperature: only the listed tokens, with their probabilities, and the draws among them."""
    heated = {text: p ** (1 / temperature) for text, p in place.listed.items()}
    total = math.fsum(heated.values())
    inside = [text for text in place.drawn if text in place.listed]
    return dataclasses.replace(place, listed={t: p / total for t, p in heated.items()}, drawn=inside)


def log_likelihood(place: Place) -> float:
    """Σ log P(draw) over the draws, in nats."""
    return math.fsum(math.log(place.listed[text]) for text in place.drawn)
