import hashlib
import json
import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.store import codecs, keys
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Message,
    Sampling,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError

# Python's text() leaves surrogates out by default.
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
PROMPTS = TEXT | st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXT), max_size=3).map(
    tuple
)
CONTINUATIONS = st.lists(TEXT.filter(bool), min_size=1, max_size=4, unique=True).map(tuple)
SCORES = st.builds(ScoreRequest, PROMPTS, CONTINUATIONS) | st.builds(
    ScoreRequest, st.just(""), CONTINUATIONS, st.just(True)
)
SAMPLINGS = st.builds(
    Sampling,
    st.floats(0, 5),
    st.floats(0.001, 1),
    st.integers(0, 100),
    st.floats(0.1, 3),
    st.integers(1, 4096),
    st.lists(TEXT.filter(bool), max_size=2).map(tuple),
)
GENERATIONS = st.builds(GenerateRequest, PROMPTS, SAMPLINGS, st.integers(-(2**62), 2**62), st.integers(0, 9))
REQUESTS = SCORES | GENERATIONS | st.builds(ClassifyRequest, TEXT)

LOGPROBS = st.floats(-1e300, 0)
TOKENS = st.builds(TokenLogprob, TEXT, st.integers(-9, 9), st.integers(0, 99), LOGPROBS, st.none() | st.integers(0))
EXACT = st.lists(TOKENS, min_size=1, max_size=4).map(lambda t: ContinuationScore.exact(t, route="echo"))
BOUNDED = st.builds(lambda h: ContinuationScore(None, None, h, "bounded", "straddled", (), "top_k"), LOGPROBS)
SAMPLED = st.builds(lambda a: ContinuationScore(None, None, a, "sampled", "clean", (), "drawn", 40), LOGPROBS)
ANSWERS = (
    st.builds(
        ScoreResponse, st.lists(EXACT | BOUNDED | SAMPLED, min_size=1, max_size=4).map(tuple), st.integers(0, 999)
    )
    | st.builds(
        GenerateResponse,
        TEXT,
        st.sampled_from(["stop", "length"]),
        st.integers(0),
        st.integers(0),
        st.just("") | TEXT,
        st.integers(0),
    )
    | st.builds(ClassifyResponse, st.dictionaries(TEXT, st.floats(0, 1), max_size=4))
)


@given(REQUESTS, REQUESTS)
def test_two_requests_share_keys_exactly_when_they_are_equal(a, b):
    same = keys.answer_keys(a, "fp1-x") == keys.answer_keys(b, "fp1-x")
    assert same == (a == b)


@given(REQUESTS)
def test_a_request_joins_again_from_each_of_its_parts(request_):
    kind, prompt, details = keys.from_json_bytes(keys.to_json_bytes(keys.split_request(request_)))
    joined = [keys.join_request(kind, prompt, detail) for detail in details]
    texts = request_.continuations if kind == "score" else ()
    expected = [replace(request_, continuations=(text,)) for text in texts] or [request_]
    assert joined == expected


@given(ANSWERS)
def test_an_answer_reads_back_from_json_to_the_last_bit(answer):
    data = keys.to_bytes(keys.canonical_json(codecs.answer_to_json(answer)))
    again = codecs.answer_from_json(json.loads(keys.from_bytes(data)))
    assert again == answer
    if isinstance(answer, ScoreResponse):
        for before, after in zip(answer.scores, again.scores, strict=True):
            assert struct.pack("<d", before.high) == struct.pack("<d", after.high)  # also distinguishes 0.0 from -0.0


def test_an_error_reads_back():
    error = BackendError("server", "bröken \ud800", retryable=True, retry_after=1.5, hint="wait")
    again = codecs.answer_from_json(json.loads(keys.canonical_json(codecs.answer_to_json(error))))
    assert isinstance(again, BackendError)
    assert again.to_json() == error.to_json()


def test_a_surrogate_pair_is_not_its_ascii_json_character():
    pair, character = "\ud83d\ude00", "\U0001f600"
    assert json.dumps(pair) == json.dumps(character)  # the trap
    assert keys.answer_keys(ClassifyRequest(pair), "f") != keys.answer_keys(ClassifyRequest(character), "f")
    assert json.loads(keys.from_bytes(keys.to_bytes(keys.canonical_json(pair)))) == pair


def test_texts_that_only_look_alike_have_different_keys():
    looks = ["\u00e9", "e\u0301", "a\x00", "a", "a ", "a\r\n", "a\n", "\ufeffa"]
    assert len({keys.answer_keys(ScoreRequest(t, ("x",)), "f") for t in looks}) == len(looks)


def test_one_more_expression_leaves_the_other_keys_as_they_are():
    few = keys.answer_keys(ScoreRequest("p", (" a", " b")), "f")
    more = keys.answer_keys(ScoreRequest("p", (" b", " new", " a")), "f")
    assert (more[2], more[0]) == few
    assert len(set(more)) == 3


def test_a_key_depends_on_the_model_the_draw_and_the_sampling():
    base = GenerateRequest("p", Sampling(temperature=1.0), seed=1, repeat=0)
    others = [
        GenerateRequest("p", Sampling(temperature=1.0), seed=2, repeat=0),
        GenerateRequest("p", Sampling(temperature=1.0), seed=1, repeat=1),
        GenerateRequest("p", Sampling(temperature=0.9), seed=1, repeat=0),
        GenerateRequest("p", Sampling(temperature=1.0, stop=("\n",)), seed=1, repeat=0),
        GenerateRequest((Message("user", "p"),), Sampling(temperature=1.0), seed=1, repeat=0),
    ]
    found = [keys.answer_keys(r, "f") for r in (base, *others)] + [keys.answer_keys(base, "g")]
    assert len(set(found)) == 7


def test_whole_numbers_and_floats_of_a_sampling_are_the_same():
    whole = GenerateRequest("p", Sampling(temperature=0, top_p=1, repetition_penalty=1))
    floats = GenerateRequest("p", Sampling(temperature=0.0, top_p=1.0, repetition_penalty=1.0))
    assert keys.answer_keys(whole, "f") == keys.answer_keys(floats, "f")


def test_a_key_is_the_documented_hash():
    text = 'score\n"fp1-x"\n"p"\n" a"'
    expected = "a1-" + hashlib.sha256(text.encode()).hexdigest()[:40]
    assert keys.answer_keys(ScoreRequest("p", (" a",)), "fp1-x") == (expected,)


def test_a_fingerprint_id_ignores_the_order_of_fields():
    assert keys.fingerprint_id({"a": 1, "b": None}) == keys.fingerprint_id({"b": None, "a": 1})
    assert keys.fingerprint_id({"a": 1}) != keys.fingerprint_id({"a": True})
    assert keys.fingerprint_id({"a": 1}).startswith("fp1-")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        keys.canonical_json({"x": value})


def test_an_answer_is_joined_only_when_complete():
    request = ScoreRequest("p", (" a", " b"))
    a, b = keys.answer_keys(request, "f")
    scores = [ContinuationScore.exact([TokenLogprob(" x", 0, 2, v)]) for v in (-1.0, -2.0)]
    whole = ScoreResponse(tuple(scores), 7)
    pieces = dict(zip((a, b), codecs.split_response(whole), strict=True))
    assert codecs.join_answers(request, (a, b), pieces) == whole
    assert codecs.join_answers(request, (a, b), {a: pieces[a]}) is None
    error = BackendError("server", "no")
    assert codecs.join_answers(request, (a, b), {a: pieces[a], b: error}) is error


def test_an_answer_that_does_not_match_is_noticed():
    request = ScoreRequest("p", (" a", " b"))
    one = ScoreResponse((ContinuationScore.exact([TokenLogprob(" a", 0, 2, -1.0)]),))
    assert not codecs.matches_request(request, one)
    assert not codecs.matches_request(request, GenerateResponse("text", "stop"))
    assert not codecs.matches_request(GenerateRequest("p"), one)
    assert codecs.matches_request(ScoreRequest("p", (" a",)), one)
    assert not codecs.matches_request(ClassifyRequest("t"), ClassifyResponse({"x": math.nan}))
    assert codecs.matches_request(ClassifyRequest("t"), ClassifyResponse({"x": 0.5}))
    assert codecs.matches_request(request, BackendError("server", "no"))
