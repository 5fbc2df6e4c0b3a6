"""The planner: what it must hold for any set of paths and any budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.local.trie import Branches, Path, Trie, common_start

sequences = st.lists(st.integers(0, 3), min_size=1, max_size=7).map(tuple)


@st.composite
def paths(draw: st.DrawFn) -> Path:
    tokens = draw(sequences)
    return Path(tokens, draw(st.integers(1, len(tokens))), draw(st.sampled_from([None, b"x", b"y"])))


batches = st.lists(paths(), min_size=1, max_size=12)


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[tuple[int, ...], list[Path]]]:
    """Heads, of which some begin with others, and whole paths that begin with them."""
    found = []
    for head in draw(st.lists(st.lists(st.integers(0, 2), max_size=4).map(tuple), min_size=1, max_size=6)):
        rest = draw(st.lists(sequences, min_size=1, max_size=4))
        asked = [(draw(st.integers(1, len(head + end))), draw(st.sampled_from([None, b"x", b"y"]))) for end in rest]
        found.append((head, [Path(head + end, *of_it) for end, of_it in zip(rest, asked, strict=True)]))
    return found


def trie_of(batch: list[Path]) -> Trie:
    return Trie([((), Branches(batch))])


def line(trie: Trie, node: int) -> tuple[int, ...]:
    """The tokens from the first down to this node."""
    return tuple(int(trie.tokens[n]) for n in [*trie.ancestors(node), node])


@given(batches)
def test_nodes_are_the_distinct_starts_that_are_read(batch: list[Path]) -> None:
    trie = trie_of(batch)
    lines = [line(trie, node) for node in range(len(trie))]
    expected = {path.computed[:n] for path in batch for n in range(1, len(path.computed) + 1)}
    assert len(lines) == len(set(lines))
    assert set(lines) == expected


@given(batches, st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_packs_keep_their_budget_and_answer_every_ask_once(
    batch: list[Path], nodes: int, rows: int, leaves: int
) -> None:
    trie = trie_of(batch)
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


def test_a_token_without_context_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="no token before it"):
        trie_of([Path((1, 2), 0)])


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9), st.integers(0, 9))
def test_the_common_start_ends_where_tokens_first_differ(a: list[int], b: list[int], shared: int) -> None:
    b = a[:shared] + b
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_start(a, b) == common_start(tuple(a), tuple(b)) == expected


@given(groups())
def test_a_trie_of_heads_asks_what_each_path_asks(batch: list[tuple[tuple[int, ...], list[Path]]]) -> None:
    """Whether a head begins another one, is asked about itself, or is there twice."""
    fans = [(head, Branches(paths, len(head))) for head, paths in batch]
    trie = Trie(fans)
    for node in range(len(trie)):
        below = [n for n in range(len(trie)) if node in [*trie.ancestors(n), n]]
        assert below == list(range(node, int(trie.ends[node])))
        assert trie.depths[node] == len(trie.ancestors(node))
    for group, ((_, paths), (_, fan)) in enumerate(zip(batch, fans, strict=True)):
        for path, mine in zip(paths, fan.asks_of, strict=True):
            asks = trie.asks_of(group)[mine]
            found = [(line(trie, trie.ask_nodes[a]), int(trie.ask_targets[a])) for a in asks]
            expected = [(path.tokens[:i], path.tokens[i]) for i in range(path.scored_from, len(path.tokens))]
            if path.next_token_set is not None:
                expected.append((path.tokens, -1 - trie.sets.index(path.next_token_set)))
            assert found == expected
            assert (trie.group_of_ask[asks] == group).all()
    assert trie.ask_nodes.tolist() == sorted(trie.ask_nodes.tolist())
