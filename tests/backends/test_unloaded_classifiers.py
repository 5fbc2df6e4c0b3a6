"""Classifiers that cannot be loaded: told before a run or once in it, and never random labels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.base import ClassifyRequest
from backends.classifiers import SequenceClassifier
from backends.errors import BackendError, ConfigError
from tests.backends.tiny_classifier import save_classifier

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT with two labels."""
    return save_classifier(tmp_path_factory.mktemp("classifier"), "toxic", "harmless")


def with_config(**options: object) -> Callable[[Path], Any]:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | options))

    return damage


def without_head(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("classifier.")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def in_eight_bits(folder: Path) -> None:
    """Quantised, and nothing in config.json says so."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = {n: (w * 100).to(torch.int8) if n.endswith("query.weight") else w for n, w in weights.items()}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


#: What was done to a folder → what is told of it.
DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no head": (without_head, "weights of the model are missing (classifier.bias, classifier.weight)"),
    "fewer layers in config.json": (with_config(num_hidden_layers=1), "fewer layers than its weights"),
    "another size": (with_config(hidden_size=32), "by config.json"),
    "cut off": (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10"), "the classifier cannot be loaded"),
    "in eight bits": (in_eight_bits, "are quantised, and its config"),
}


@pytest.mark.parametrize("done", DAMAGED)
async def test_labels_are_never_those_of_random_weights(done: str, whole: Path, tmp_path: Path) -> None:
    """transformers draws what is missing, and says so in a report that nobody reads."""
    damage, says = DAMAGED[done]
    damage(Path(shutil.copytree(whole, tmp_path / "model")))
    classifier = SequenceClassifier(str(tmp_path / "model"))
    classifier.check()
    answers = await classifier.run([ClassifyRequest("the man"), ClassifyRequest("kind")])
    await classifier.close()
    assert [type(answer) for answer in answers] == [BackendError, BackendError]
    assert says in str(answers[0])


def test_a_folder_without_a_tokenizer_is_told_at_once(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    for file in (*folder.glob("*token*"), *folder.glob("vocab*")):
        file.unlink()
    with pytest.raises(ConfigError, match="a folder without a tokenizer") as caught:
        SequenceClassifier(str(folder)).check()
    assert caught.value.field == "classifier.model"


async def test_an_unloaded_classifier_is_tried_once(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    (folder / "tokenizer.json").write_text("{")
    classifier, tries = SequenceClassifier(str(folder)), []
    load = classifier._load
    monkeypatch.setattr(classifier, "_load", lambda: (tries.append(1), load())[1])
    capfd.readouterr()
    answers = [(await classifier.run([ClassifyRequest(text)]))[0] for text in ("the man", "kind", "he")]
    assert [answer.unloaded for answer in answers if isinstance(answer, BackendError)] == [True] * 3
    assert len(tries) == 1
    assert capfd.readouterr().err == ""
    await classifier.close()
    await classifier.run([ClassifyRequest("a later run tries again")])
    assert len(tries) == 2
