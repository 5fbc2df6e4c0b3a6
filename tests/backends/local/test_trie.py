"""The planner: what it must hold for any set of paths and any budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.local.trie import Branch, Branches, Path, Paths, Trie, common_start

sequences = st.lists(st.integers(0, 3), min_size=1, max_size=7).map(tuple)


@st.composite
def paths(draw: st.DrawFn) -> Path:
    tokens = draw(sequences)
    return Path(tokens, draw(st.integers(1, len(tokens))), draw(st.sampled_from([None, b"x", b"y"])))


batches = st.lists(paths(), min_size=1, max_size=12)
kept_paths = st.lists(st.integers(0, 3), max_size=7).map(tuple)


def line(trie: Trie, node: int) -> tuple[int, ...]:
    """The tokens from the first down to this node."""
    return tuple(int(trie.tokens[n]) for n in [*trie.ancestors(node), node])


@given(batches, kept_paths)
def test_nodes_are_the_distinct_starts_that_are_read(batch: list[Path], kept: tuple[int, ...]) -> None:
    trie = Trie(batch, kept)
    lines = [line(trie, node) for node in range(len(trie))]
    expected = {path.computed[:n] for path in batch for n in range(1, len(path.computed) + 1)}
    assert len(lines) == len(set(lines))
    assert set(lines) == expected


@given(batches, kept_paths)
def test_nodes_are_in_preorder(batch: list[Path], kept: tuple[int, ...]) -> None:
    trie = Trie(batch, kept)
    for node in range(len(trie)):
        assert trie.parents[node] < node
        below = [n for n in range(len(trie)) if node in [*trie.ancestors(n), n]]
        assert below == list(range(node, trie.after(node)))


@given(batches, kept_paths)
def test_asks_lead_to_node_and_target_of_each_token(batch: list[Path], kept: tuple[int, ...]) -> None:
    trie = Trie(batch, kept)
    for path, asks in zip(batch, trie.asks_of, strict=True):
        found = [(line(trie, trie.ask_nodes[a]), int(trie.ask_targets[a])) for a in asks]
        expected = [(path.tokens[:i], path.tokens[i]) for i in range(path.scored_from, len(path.tokens))]
        if path.next_token_set is not None:
            expected.append((path.tokens, -1 - trie.sets.index(path.next_token_set)))
        assert found == expected
    pairs = list(zip(trie.ask_nodes.tolist(), trie.ask_targets.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))


@given(batches, kept_paths, st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_packs_keep_their_budget_and_answer_every_ask_once(
    batch: list[Path], kept: tuple[int, ...], nodes: int, rows: int, leaves: int
) -> None:
    trie = Trie(batch, kept)
    start, asked = 0, []
    while start < len(trie):
        pack = trie.pack(start, nodes=nodes, rows=rows, leaves=leaves)
        members = range(pack.start, pack.stop)
        mine = trie.ask_nodes[pack.first_ask : pack.last_ask].tolist()
        assert pack.start == start < pack.stop
        assert len(members) <= nodes
        assert len(set(mine)) <= rows
        parents = set(trie.parents[start : pack.stop].tolist())
        assert sum(node not in parents for node in members) <= leaves
        assert set(mine) <= set(members)
        asked += range(pack.first_ask, pack.last_ask)
        # What everything rests on: one chain serves the whole pack.
        chain = set(trie.ancestors(start))
        for node in members:
            assert {n for n in trie.ancestors(node) if n < start} <= chain
        start = pack.stop
    assert asked == list(range(len(trie.ask_nodes)))


@given(batches, kept_paths)
def test_reused_nodes_are_kept_and_without_asks(batch: list[Path], kept: tuple[int, ...]) -> None:
    trie = Trie(batch, kept)
    count = trie.reusable(kept)
    assert trie.tokens[:count].tolist() == list(kept[:count])
    assert trie.depths[:count].tolist() == list(range(count))
    assert not set(trie.ask_nodes.tolist()) & set(range(count))
    # As much as can be: what stops it is the path's end, another token, or an ask.
    if count < len(kept) and any(path.computed[: count + 1] == kept[: count + 1] for path in batch):
        assert count in trie.ask_nodes


def test_a_prompt_with_one_token_answers_costs_its_own_length() -> None:
    trie = Trie([Path((5, 6, 7, answer), 3) for answer in range(26)])
    assert len(trie) == 3
    assert set(trie.ask_nodes.tolist()) == {2}


def test_a_token_without_context_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="scored_from"):
        Path((1, 2), 0)


def test_common_start_counts_equal_leading_tokens() -> None:
    assert common_start((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common_start((1, 2), (1, 2, 4)) == 2
    assert common_start((), (1,)) == 0


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9), st.integers(0, 9))
def test_the_common_start_ends_where_tokens_first_differ(a: list[int], b: list[int], shared: int) -> None:
    b = a[:shared] + b
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_start(a, b) == common_start(tuple(a), tuple(b)) == expected


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[tuple[int, ...], Branches]]:
    """Heads, of which some begin with others, and branches that several of them share."""
    tokens = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)
    branch = st.builds(
        lambda tokens, part, named: Branch(tokens, round(part * len(tokens)), named),
        tokens,
        st.floats(0, 1),
        st.sampled_from([None, b"x", b"y"]),
    )
    fans = draw(st.lists(st.lists(branch, min_size=1, max_size=4).map(Branches), min_size=1, max_size=3))
    return draw(st.lists(st.tuples(tokens, st.sampled_from(fans)), min_size=1, max_size=6))


@given(groups(), kept_paths)
def test_a_trie_of_heads_and_branches_is_that_of_their_paths(
    batch: list[tuple[tuple[int, ...], Branches]], kept: tuple[int, ...]
) -> None:
    grouped = Paths(batch)
    found, expected = Trie(grouped, kept), Trie(list(grouped), kept)
    for name in ("tokens", "parents", "depths", "ask_nodes", "ask_targets"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert found.sets == expected.sets
    assert [asks.tolist() for asks in found.asks_of] == [asks.tolist() for asks in expected.asks_of]
    answers = np.linspace(-1, 0, len(found.ask_nodes))
    assert [x.tolist() for x in found.share_out(answers)] == [answers[asks].tolist() for asks in expected.asks_of]


@given(groups(), kept_paths, st.integers(1, 3), st.integers(1, 9))
def test_groups_end_once_and_few_in_each_part(
    batch: list[tuple[tuple[int, ...], Branches]], kept: tuple[int, ...], most: int, nodes: int
) -> None:
    grouped = Paths(batch)
    trie = Trie(grouped, kept)
    answers = np.linspace(-1, 0, len(trie.ask_nodes))
    expected = trie.share_out(answers)
    known, ended = np.full(len(answers), np.nan), []
    start = 0
    while start < len(trie):
        pack = trie.pack(start, nodes=nodes, rows=99)
        stops = trie.parts(pack.first_ask, pack.last_ask, most)
        assert (stops[-1], stops) == (pack.last_ask, sorted(stops))
        for first, last in itertools.pairwise([pack.first_ask, *stops]):
            known[first:last] = answers[first:last]
            assert not set(trie.ask_nodes[first:last]) & set(trie.ask_nodes[last:]), "a node's asks are of one part"
            now = [(group, values) for group, values in trie.ended(known, first, last) if any(map(len, values))]
            nodes_of_last = {int(trie.ask_nodes[max(a for p in group for a in trie.asks_of[p])]) for group, _ in now}
            assert len(now) <= most or len(nodes_of_last) < len(now), "more end together at one node alone"
            for group, values in now:
                assert [x.tolist() for x in values] == [expected[place].tolist() for place in group], "and no NaN"
                ended.append(group)
        start = pack.stop
    with_asks = [range(stop - len(fan), stop) for stop, (_, fan) in zip(grouped._ends, batch, strict=True)]
    with_asks = [group for group in with_asks if any(len(expected[place]) for place in group)]
    assert sorted(ended, key=lambda group: group.start) == with_asks


def test_grouped_paths_are_those_of_each_head_in_turn() -> None:
    fan = Branches([Branch((7,), 0), Branch((8, 9), 1, b"x")])
    grouped = Paths([((1, 2), fan), ((3,), fan)])
    every = [Path((1, 2, 7), 2), Path((1, 2, 8, 9), 3, b"x"), Path((3, 7), 1), Path((3, 8, 9), 2, b"x")]
    assert list(grouped) == every == [grouped[i] for i in range(4)]
    assert (len(grouped), grouped[-1], grouped[1:3]) == (4, every[-1], every[1:3])
    with pytest.raises(IndexError):
        grouped[4]
