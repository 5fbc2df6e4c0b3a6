"""Where a continuation starts, on plain pieces of text, and the spellings of a remainder."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import BackendError
from backends.local.boundary import SplitTokens, Vocabulary, locate_continuation, prefix_tokenizations


def placed(
    prompt: str, continuation: str, pieces: list[str | bytes], alone: list[str | bytes], added: int = 0
) -> SplitTokens:
    """`place` with pieces in place of token ids; BOS is an empty piece."""
    numbers: dict[bytes, int] = {}
    as_bytes = [p.encode() if isinstance(p, str) else p for p in pieces]
    ids = [numbers.setdefault(p, len(numbers)) for p in as_bytes]
    prompt_ids = [numbers.setdefault(p.encode() if isinstance(p, str) else p, len(numbers)) for p in alone]
    return locate_continuation(prompt, continuation, prompt_ids, ids, as_bytes, added)


@pytest.mark.parametrize(
    ("prompt", "continuation", "pieces", "alone", "found", "spans"),
    [
        ("The nurse", " herself", ["The", " nurse", " herself"], ["The", " nurse"], ("clean", 2, b""), [(0, 8)]),
        ("The ", "herself", ["The", " herself"], ["The", " "], ("straddled", 1, b" "), [(-1, 7)]),
        ('He "', "Yes", ["He", ' "', "Yes"], ["He", ' "'], ("clean", 2, b""), [(0, 3)]),
        ("f(", ")x", ["f", "()", "x"], ["f", "("], ("straddled", 1, b"("), [(-1, 1), (1, 2)]),
        ("A police", "man", ["A", " policeman"], ["A", " police"], ("straddled", 1, b" police"), [(-7, 3)]),
        ("ab", "cd", ["a", "b", "cd"], ["ab"], ("merged", 2, b""), [(0, 2)]),  # the prompt's own last tokens change
    ],
)
def test_where_a_continuation_begins(
    prompt: str, continuation: str, pieces: list[str | bytes], alone: list[str | bytes], found: object, spans: object
) -> None:
    split = placed(prompt, continuation, pieces, alone)
    assert (split.boundary, split.first, split.remainder) == found
    assert [(span.start, span.end) for span in split.spans] == spans


def test_an_emoji_split_over_tokens_counts_as_one_character() -> None:
    astronaut = "👩".encode()
    found = placed("Hi", " 👩!", ["Hi", b" " + astronaut[:2], astronaut[2:], "!"], ["Hi"])
    assert found.boundary == "clean"
    assert [(s.start, s.end) for s in found.spans] == [(0, 2), (1, 2), (2, 3)]


def test_space_in_front_of_every_text_is_not_the_prompts() -> None:
    found = placed("The man", " he", [b"", " The", " man", " he"], [b"", " The", " man"], added=1)
    assert (found.boundary, found.first) == ("clean", 3)
    found = placed("", "The", [b"", " The"], [b""], added=1)
    assert (found.boundary, found.first, found.remainder) == ("clean", 1, b"")
    assert [(s.start, s.end) for s in found.spans] == [(-1, 3)]


def test_space_that_the_prompt_alone_loses_is_its_own() -> None:
    found = placed("said ", "She", ["said", " ", "S", "he"], ["said"])
    assert (found.boundary, found.first, found.remainder) == ("merged", 2, b"")
    found = placed("said ", "she", ["said", " she"], ["said"])
    assert (found.boundary, found.first, found.remainder) == ("straddled", 1, b" ")


def test_a_first_token_without_anything_before_it_is_refused() -> None:
    with pytest.raises(BackendError, match="no token before it") as error:
        placed("", "The", ["The"], [])
    assert error.value.kind == "bad_request"


def test_a_first_token_that_is_given_is_left_out() -> None:
    def given(pieces: list[bytes], added: int) -> SplitTokens:
        ids = list(range(len(pieces)))
        return locate_continuation("", "Théo", ids[:added], ids, pieces, added, first_given=True)

    found = given([b"Th", "éo".encode()], 0)
    assert (found.first, [(s.text, s.start, s.end) for s in found.spans]) == (1, [("éo", 2, 4)])
    found = given(["Théo".encode()], 0)
    assert (found.first, found.spans) == (1, ())
    found = given([b"", b"Th", "éo".encode()], 1)  # after BOS the first token is scored as ever
    assert (found.first, len(found.spans)) == (1, 2)


def test_a_tokenizer_that_rewrites_the_continuation_is_refused() -> None:
    with pytest.raises(BackendError, match="rewrites the text") as error:
        placed("The", " HE", ["The", " he"], ["The"])
    assert error.value.kind == "unsupported"


PIECES = [b"a", b"b", b"ab", b"ba", b"aba", b" ", b" a", b"<s>"]
CONTROL = PIECES.index(b"<s>")


@given(st.lists(st.sampled_from("ab "), min_size=1, max_size=4).map("".join))
def test_minimal_tokenizations_are_all_and_exclusive(text: str) -> None:
    remainder = text.encode()
    vocabulary = Vocabulary(PIECES, {CONTROL})
    found = set()
    for start in prefix_tokenizations(vocabulary, remainder):
        for last in vocabulary.beginning_with(start.rest):
            found.add((*start.tokens, int(last)))
    plain = [i for i in range(len(PIECES)) if i != CONTROL]
    expected = set()
    for length in range(1, len(remainder) + 1):
        for tokens in itertools.product(plain, repeat=length):
            spelt = b"".join(PIECES[i] for i in tokens)
            shorter = b"".join(PIECES[i] for i in tokens[:-1])
            if spelt.startswith(remainder) and len(shorter) < len(remainder):
                expected.add(tokens)
    assert found == expected


def test_too_many_tokenizations_are_refused() -> None:
    vocabulary = Vocabulary([b"a", b"aa", b"aaa"], set())
    with pytest.raises(BackendError, match="tokenizations") as error:
        prefix_tokenizations(vocabulary, b"a" * 40)
    assert error.value.kind == "unsupported"


@given(st.lists(st.binary(max_size=3), max_size=60), st.binary(min_size=1, max_size=3))
def test_tokens_that_begin_alike_are_all_found_each_time(pieces: list[bytes], start: bytes) -> None:
    vocabulary = Vocabulary(pieces, {0})
    naive = [i for i, piece in enumerate(pieces) if i and piece and piece.startswith(start)]
    for _ in range(2):  # found, then remembered
        assert sorted(vocabulary.beginning_with(start).tolist()) == naive
        assert vocabulary.tokenizations(start) == prefix_tokenizations(vocabulary, start)
