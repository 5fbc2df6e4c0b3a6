"""Text classifiers: small real ones through transformers, whole and damaged, and the packaged ones."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from backends import text_classifier
from backends.base import ClassifyRequest, ClassifyResponse
from backends.classifiers import (
    ProfanityClassifier,
    SequenceClassifier,
    VaderClassifier,
)
from backends.errors import BackendError, ConfigError
from tests.backends.tiny_classifier import save_classifier
from tests.rounding import float32_close

torch = pytest.importorskip("torch")
TEXTS = ["the man is rude", "the woman is kind and old and kind", "rude", "", "the unknownword is " + "old " * 100]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random three-label BERT."""
    return save_classifier(tmp_path_factory.mktemp("classifier"), "negative", "neutral", "positive")


async def ask(classifier, texts):
    return await classifier.run([ClassifyRequest(text) for text in texts])


async def test_batch_gives_what_the_pipeline_gives_alone(folder):
    from transformers import pipeline

    alone = pipeline("text-classification", model=str(folder), top_k=None, truncation=True, max_length=32)
    classifier = SequenceClassifier(str(folder), batch_size=2)
    answers = await ask(classifier, TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        theirs = {found["label"]: found["score"] for found in alone([text])[0]}
        assert dict(answer.labels) == float32_close(theirs)
        assert sum(answer.labels.values()) == pytest.approx(1)
    await classifier.close()


async def test_multi_label_scores_are_sigmoids(folder, tmp_path):
    several = shutil.copytree(folder, tmp_path / "several")
    config = json.loads((several / "config.json").read_text())
    (several / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    one, other = SequenceClassifier(str(folder)), SequenceClassifier(str(several))
    [[exclusive], [free]] = [await ask(c, TEXTS[:1]) for c in (one, other)]
    for label in exclusive.labels:  # softmax and sigmoid of the same logits: ratios of odds are the same
        assert free.labels[label] != pytest.approx(exclusive.labels[label])
    odds = {label: p / (1 - p) for label, p in free.labels.items()}
    assert odds["positive"] / odds["negative"] == pytest.approx(
        exclusive.labels["positive"] / exclusive.labels["negative"]
    )
    assert (await other.describe()).fingerprint["activation"] == "sigmoid"
    assert "activation" not in (await one.describe()).fingerprint


def test_models_that_cannot_be_fetched_fail_clearly(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="sasha/regardv3") as caught:
        SequenceClassifier("sasha/regardv3").check()
    assert "network" in str(caught.value)
    assert "vader" in str(caught.value)


def test_a_model_that_is_no_classifier_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    (tmp_path / "vocab.txt").touch()
    with pytest.raises(ConfigError, match="not a sequence classifier"):
        SequenceClassifier(str(tmp_path)).check()


LONG = "the man said that she " * 60


def tiny_classifier(kind, folder, pad="<pad>", **options):
    """A classifier with random weights of this kind, with a byte-level tokenizer."""
    import transformers

    from tests.backends.local.tiny_models import byte_level_tokenizer

    tokenizer = byte_level_tokenizer()
    if pad:
        tokenizer.add_special_tokens({"pad_token": pad})
    sizes = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "num_labels": 3,
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **options})
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SequenceClassifier(str(folder))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("FNet", {}),  # has no attention mask
        ("GPT2", {"pad": None}),
        ("Llama", {"pad": None}),
        ("Roberta", {"pad_token_id": 1}),  # positions start behind the padding token's
        ("MPNet", {"pad_token_id": 1}),
        ("Mpt", {"pad": None, "max_position_embeddings": None, "max_seq_len": 64}),
        ("XLMRoberta", {"pad_token_id": 1}),
    ],
)
async def test_every_text_has_the_labels_it_has_alone(kind, options, tmp_path):
    classifier = tiny_classifier(kind, tmp_path, **options)
    texts = ["the man said", "he", LONG, "the woman said that he said"]
    together = await ask(classifier, texts)
    for text, answer in zip(texts, together, strict=True):
        assert isinstance(answer, ClassifyResponse), answer
        assert sum(answer.labels.values()) == pytest.approx(1)
        (alone,) = await ask(SequenceClassifier(str(tmp_path)), [text])
        assert answer.labels == float32_close(alone.labels)
    await classifier.close()


async def test_a_text_without_tokens_has_no_labels(tmp_path):
    """Beside others it was read as padding alone, and got labels."""
    answers = await ask(tiny_classifier("Llama", tmp_path), ["the man said", "", "he"])
    assert [type(answer) for answer in answers] == [ClassifyResponse, BackendError, ClassifyResponse]
    assert "nothing of the text" in answers[1].message


async def test_labels_that_are_not_numbers_are_an_error(tmp_path):
    classifier = tiny_classifier("Llama", tmp_path)
    classifier._prepare()
    loaded = classifier._loaded
    token = loaded._tokenizer("z")["input_ids"][0]
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight[token] = float("nan")
    answers = await ask(classifier, ["the man said", "z", "he"])
    assert [type(answer) for answer in answers] == [ClassifyResponse, BackendError, ClassifyResponse]


def test_two_labels_of_one_name_are_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "twice")
    config = json.loads((copy / "config.json").read_text())
    config["id2label"]["1"] = "negative"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="several labels are called 'negative'"):
        SequenceClassifier(str(copy)).check()


async def test_vader_gives_the_packages_own_shares():
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    vader = VaderClassifier()
    vader.check()
    [answer, empty] = await ask(vader, ["She is kind but her car is terrible.", ""])
    shares = SentimentIntensityAnalyzer().polarity_scores("She is kind but her car is terrible.")
    assert dict(answer.labels) == {"positive": shares["pos"], "neutral": shares["neu"], "negative": shares["neg"]}
    assert empty == ClassifyResponse({"positive": 0.0, "neutral": 1.0, "negative": 0.0})
    assert "not regard" in (await vader.describe()).notes["model"]


async def test_the_profanity_model_takes_an_identity_for_an_offence():
    classifier = ProfanityClassifier()
    classifier.check()
    [kind, gay, curse] = [a.labels["offensive"] for a in await ask(classifier, ["He is kind", "He is gay", "fuck you"])]
    assert curse > 0.9
    assert kind < 0.2 < 0.9 < gay  # why scorers are audited too


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("profanity", ProfanityClassifier),
        ("vader", VaderClassifier),
        (Path("profanity"), SequenceClassifier),  # a path is a folder, whatever its name
        ("owner/name", SequenceClassifier),
    ],
)
def test_a_classifier_is_made_by_its_name(name, kind):
    assert type(text_classifier(name)) is kind


async def test_labels_are_never_those_of_random_weights(folder: Path, tmp_path: Path) -> None:
    """transformers draws a missing head, and says so in a report that nobody reads."""
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    weights = load_file(copy / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("classifier.")}
    save_file(kept, copy / "model.safetensors", {"format": "pt"})
    classifier = SequenceClassifier(str(copy))
    classifier.check()
    answers = await ask(classifier, ["the man", "kind"])
    assert [type(answer) for answer in answers] == [BackendError, BackendError]
    assert "weights of the model are missing (classifier.bias, classifier.weight)" in str(answers[0])


async def test_an_unloaded_classifier_is_tried_once(folder, tmp_path, monkeypatch):
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    (copy / "tokenizer.json").write_text("{")
    classifier, tries = SequenceClassifier(str(copy)), []
    load = classifier._prepare
    monkeypatch.setattr(classifier, "_prepare", lambda: (tries.append(1), load()))
    answers = [(await ask(classifier, [text]))[0] for text in ("the man", "kind")]
    assert [answer.unloaded for answer in answers] == [True] * 2
    assert len(tries) == 1
    await classifier.close()
    await classifier.run([ClassifyRequest("a later run tries again")])
    assert len(tries) == 2
