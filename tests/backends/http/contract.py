"""What any backend owes, and most of all one over HTTP that is new: its first test.

    async def test_my_backend_keeps_the_contract() -> None:
        await keeps_the_contract(MyBackend("…"), "Q: Who is the nurse?\\nA:", (" He", " She"))

It asks for scores and a text, a request that fails among them, and checks what the engine relies on without looking.
"""

from __future__ import annotations

import json
import math

from backends.base import Backend, GenerateRequest, GenerateResponse, Prompt, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError

#: Units in the last place of a sum of a few float64 log-probabilities.
_ROUNDING = 8 * 2.0**-52


def check_scores(request: ScoreRequest, response: ScoreResponse) -> None:
    """Assert that a response is one that a suite may read."""
    assert len(response.scores) == len(request.continuations), "one score for each continuation, in their order"
    for text, score in zip(request.continuations, response.scores, strict=True):
        if score.exactness == "exact":
            assert score.logprob is not None
            assert score.low == score.logprob == score.high, f"{text!r}: an exact score is its own bounds"
            assert score.tokens, f"{text!r}: without its tokens, suites of sentences count it as missing"
            assert all(token.exact for token in score.tokens)
            total = math.fsum(token.logprob for token in score.tokens)
            assert abs(total - score.logprob) <= _ROUNDING * max(1.0, abs(total)), f"{text!r}: not its tokens' sum"
        if score.tokens and score.boundary != "straddled" and score.exactness == "exact":
            spelled = "".join(token.text for token in score.tokens)
            assert spelled.strip() == text.strip(), f"{text!r}: its tokens spell {spelled!r}"
            assert [token.end for token in score.tokens[:-1]] == [token.start for token in score.tokens[1:]]
        if score.exactness == "sampled":
            assert score.samples, f"{text!r}: a share without its number of draws has no error"
        if score.logprob is not None and score.low is not None:
            assert score.low <= score.logprob <= score.high


async def keeps_the_contract(backend: Backend, prompt: Prompt, continuations: tuple[str, ...]) -> None:
    """Assert that a backend answers as the engine relies on; it is closed afterwards."""
    backend.check()
    description = await backend.describe()
    assert json.loads(json.dumps(dict(description.fingerprint))) == dict(description.fingerprint), "flat JSON scalars"
    assert not any("sk-" in str(value) for value in description.fingerprint.values()), "no key in a fingerprint"
    scored, text = ScoreRequest(prompt, continuations), GenerateRequest(prompt, Sampling(max_tokens=16))
    impossible = GenerateRequest(prompt, Sampling(max_tokens=16, temperature=1.0, top_k=3, repetition_penalty=9.0))
    answers = await backend.run([scored, impossible, text])
    assert len(answers) == 3, "one answer for each request, in their order; a failure is an answer"
    if "score" in description.capabilities:
        assert isinstance(answers[0], ScoreResponse), answers[0]
        check_scores(scored, answers[0])
        (again,) = await backend.run([ScoreRequest(prompt, continuations[-1:])])
        assert isinstance(again, ScoreResponse), "a part of the continuations can be asked for"
        check_scores(ScoreRequest(prompt, continuations[-1:]), again)
    else:
        assert isinstance(answers[0], BackendError)
    assert isinstance(answers[1], GenerateResponse | BackendError)
    if "generate" in description.capabilities:
        assert isinstance(answers[2], GenerateResponse), answers[2]
        assert answers[2].finish_reason in ("stop", "length")
    await backend.close()
    await backend.close()
