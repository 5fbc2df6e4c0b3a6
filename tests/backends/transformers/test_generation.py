"""Texts on transformers, many at once, against the models' own ``generate``, one text at a time."""

import pytest

from backends.base import GenerateRequest, Sampling
from backends.errors import BackendError
from backends.local import generation as local_generation
from backends.local.generation import TextGenerator
from backends.transformers.generation import HFGeneration

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


class Digits:
    """An encoder whose tokens are numbers: what the engine does is visible in the text."""

    def render(self, prompt):
        if prompt == "no template":
            raise BackendError("unsupported", "no chat template")
        return [int(token) for token in prompt.split()]

    def visible(self, token):
        return f" {token}".encode()


def tiny(kind):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 1,
    }  # fmt: skip
    if kind == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **sizes))
    else:  # layers that see 8 tokens back, and one that sees all
        config = transformers.Gemma3TextConfig(num_hidden_layers=3, head_dim=8, sliding_window=8, **sizes)
        config.layer_types = ["sliding_attention", "full_attention", "sliding_attention"]
        model = transformers.Gemma3ForCausalLM(config)
    for parameter in model.parameters():  # wider logits than at the start of training: no near ties
        parameter.data.mul_(3)
    return model.eval()


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def llama():
    return tiny("llama")


@pytest.fixture(autouse=True)
def one_thread():
    """Models of this size are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prompts(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 20, (n,), generator=generator).tolist()
    return [" ".join(str(t) for t in torch.randint(2, 60, (k,), generator=generator).tolist()) for k in lengths]


def engine_of(model):
    return HFGeneration(model, Digits(), device="cpu", ends=frozenset((1, model.config.eos_token_id)))


def ask(model, requests):
    streamed = []
    answers = TextGenerator(engine_of(model)).generate(requests, lambda *one: streamed.append(one))
    assert len(dict(streamed)) == len(streamed), "each once"
    assert all(answers[place] is answer for place, answer in streamed)
    assert {place for place, answer in enumerate(answers) if not isinstance(answer, BackendError)} <= {*dict(streamed)}
    return answers


def spelled(ids):
    return "".join(f" {token}" for token in ids if token != 1)


def alone(model, prompt, max_tokens):
    ids = torch.tensor([Digits().render(prompt)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, eos_token_id=1)
    return spelled(out[0, ids.shape[1] :].tolist())


def test_texts_are_those_of_generate_one_by_one(model, monkeypatch):
    monkeypatch.setattr(local_generation, "MOST_TEXTS", 6)  # 13 texts in batches of 6, which shrink as texts end
    asked = [(prompt, 3 + 5 * (i % 7)) for i, prompt in enumerate(prompts(13))]
    answers = ask(model, [GenerateRequest(p, Sampling(max_tokens=n)) for p, n in asked])
    assert [a.text for a in answers] == [alone(model, p, n) for p, n in asked]
    for answer, (_, most) in zip(answers, asked, strict=True):
        assert answer.finish_reason == ("length" if answer.completion_tokens == most else "stop")


SAMPLINGS = [
    Sampling(temperature=1.0, max_tokens=12),
    Sampling(temperature=0.7, top_p=0.9, max_tokens=12),
    Sampling(temperature=1.3, top_k=20, repetition_penalty=1.3, max_tokens=12),
    Sampling(repetition_penalty=1.2, max_tokens=12),
]


def test_a_text_depends_on_its_own_request_alone(model, monkeypatch):
    requests = [GenerateRequest(p, SAMPLINGS[i % 4], seed=i // 2, repeat=i % 2) for i, p in enumerate(prompts(12))]
    together = ask(model, requests)
    assert [ask(model, [request])[0] for request in requests] == together, "these models have no near ties"
    monkeypatch.setattr(local_generation, "MOST_TEXTS", 3)
    assert ask(model, requests[::-1])[::-1] == together


def test_options_of_the_models_own_file_do_not_count():
    """A penalty there would change the texts of all requests that ask for none."""
    other = tiny("llama")
    usual = ask(other, [GenerateRequest("5 6 7", Sampling(max_tokens=9))])
    other.generation_config = transformers.GenerationConfig(repetition_penalty=5.0, suppress_tokens=list(range(30)))
    assert ask(other, [GenerateRequest("5 6 7", Sampling(max_tokens=9))]) == usual


def test_equal_prompts_are_read_once_and_repeats_differ(model, monkeypatch):
    asked = ["5 6 7 8 9", "9 8 7"]
    requests = [GenerateRequest(p, Sampling(temperature=1.0, max_tokens=6), 2, r) for p in asked for r in range(6)]
    expected = [ask(model, [request])[0] for request in requests]
    assert len({answer.text for answer in expected[:6]}) > 4
    ours, forward, read = TextGenerator(engine_of(model)), model.forward, []
    ours.generate(requests[:1])  # tries the model
    monkeypatch.setattr(
        model, "forward", lambda input_ids, **o: read.append(input_ids.numel()) or forward(input_ids, **o)
    )
    assert ours.generate(requests) == expected
    assert read[:2] == [8, 12], "two prompts but their last tokens, then a token of each text"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_nan_is_an_error_of_its_text_and_reaches_no_other(monkeypatch, temperature):
    """As float16 gives it where a model's numbers pass its range; here one token is spoilt."""
    monkeypatch.setattr(local_generation, "MOST_TEXTS", 5)
    llama = tiny("llama")
    requests = [GenerateRequest(p, Sampling(temperature=temperature, max_tokens=9)) for p in prompts(20)]
    usual = ask(llama, requests)
    spoilt = next(int(tokens[4]) for a in usual if len(tokens := a.text.split()) == 9)
    llama.get_input_embeddings().weight.data[spoilt] = float("nan")
    read = [
        r.prompt.split() + a.text.split()[: 8 + (a.finish_reason == "stop")]
        for r, a in zip(requests, usual, strict=True)
    ]
    late = 0
    for request, before, tokens, answer in zip(requests, usual, read, ask(llama, requests), strict=True):
        if str(spoilt) in tokens:
            assert isinstance(answer, BackendError)
            assert (answer.kind, answer.hint) == ("internal", "try float32, or a GGUF file of another quantisation")
            late += str(spoilt) not in request.prompt.split()
        else:
            assert answer == before
    assert 0 < late < 20


def test_odd_requests_fail_alone(monkeypatch):
    """Four of 96, by a token on which the model fails; and a chat without a template, and one too long."""
    llama = tiny("llama")
    embed = llama.get_input_embeddings()
    forward = embed.forward

    def failing(ids):
        if bool((ids == 59).any()):
            raise RuntimeError("planted")
        return forward(ids)

    odd = set(range(7, 96, 25))
    requests = [
        GenerateRequest("59" if i in odd else str(2 + i % 50), Sampling(temperature=1.0, max_tokens=4), seed=i)
        for i in range(96)
    ]
    llama.lm_head.weight.data[59] = 0
    bias = torch.zeros(60)
    bias[59] = float("-inf")  # never drawn
    head = llama.lm_head.forward
    monkeypatch.setattr(llama.lm_head, "forward", lambda x: head(x) + bias)
    usual = ask(llama, requests)
    monkeypatch.setattr(embed, "forward", failing)
    refused = [GenerateRequest(p, Sampling(max_tokens=3)) for p in ("", "no template", "7 " * 300)]
    answers = ask(llama, [*requests, *refused])
    assert [answer.kind for answer in answers[96:]] == ["bad_request", "unsupported", "context_length"]
    assert {i for i, answer in enumerate(answers[:96]) if isinstance(answer, BackendError)} == odd
    assert all(answer == usual[i] for i, answer in enumerate(answers[:96]) if i not in odd)


def test_rows_are_halved_until_they_fit_and_grow_back(llama, monkeypatch):
    """By hand: this machine's memory cannot be filled within a test. A text too long for it fails alone."""
    sampling = Sampling(temperature=1.0, max_tokens=8)
    requests = [GenerateRequest(p, sampling, seed=i) for i, p in enumerate(prompts(20))]
    usual = ask(llama, requests)
    forward, most = llama.forward, 3

    def small(input_ids, **options):
        mask = options.get("attention_mask")
        if len(input_ids) > most or (mask is not None and mask.shape[1] > 40):
            raise torch.OutOfMemoryError("planted")
        return forward(input_ids, **options)

    monkeypatch.setattr(llama, "forward", small)
    ours, streamed = TextGenerator(engine_of(llama)), []
    long = GenerateRequest("7 8 9 " * 13, sampling)
    *found, refused = ours.generate([*requests, long], lambda *one: streamed.append(one))
    assert found == usual
    assert refused.kind == "out_of_memory"
    assert sorted(place for place, _ in streamed) == list(range(21)), "each once"
    monkeypatch.setattr(llama, "forward", forward)
    for _ in range(9):
        assert ours.generate(requests) == usual
    assert ours.halvings == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_rounding_to_sixteen_bits_is_no_reason_to_refuse(kind, dtype):
    answer = ask(tiny(kind).to(dtype), [GenerateRequest("5 6 7", Sampling(max_tokens=4))])[0]
    assert not isinstance(answer, BackendError), answer
