"""A classifier of texts with random weights, small enough to be written for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "man", "woman", "is", "kind", "rude", "and", "old"]


def save_classifier(path: Path, *labels: str) -> Path:
    """Write a BERT of these labels into a folder."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    (path / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(vocab=str(path / "vocab.txt"), model_max_length=32).save_pretrained(path)
    numbers = {label: number for number, label in enumerate(labels)}
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, id2label=dict(enumerate(labels)), label2id=numbers,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    model.classifier.weight.data.mul_(20)  # labels that differ
    model.save_pretrained(path)
    return path
