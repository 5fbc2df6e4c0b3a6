"""Where a text may be cut so that its two parts have the tokens of the whole, whatever is appended to it.

A text is cut before a single space between two ASCII letters: "… the nurse| said" has the tokens of "… the nurse", and
then those that " said" has behind any text that ends in such a letter. BPE makes nothing but tokens of its vocabulary,
so where none of them holds a letter and then a space, it merges nothing across the cut. That no step before it looks
across is tried by `backends.local.plans` with each new end, on whole texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: The end of the longest match is where a text is cut: the last place of this kind.
CUT = re.compile(r".*[A-Za-z](?= [A-Za-z])", re.DOTALL)
#: What ends of texts are encoded behind: the shortest text that may stand before a cut.
ANCHOR = "a"

#: The steps before BPE that read a text by classes of characters or by expressions over words.
_STEPS = {"NFC", "Replace", "Prepend", "ByteLevel", "Metaspace", "Split", "Digits"}
_ACROSS = re.compile("[A-Za-z][ Ġ▁]")


def cuts_at_words(state: Mapping[str, Any]) -> bool:
    """Whether a tokenizer, given its file, allows texts to be cut at `CUT`."""
    model = state["model"]
    odd = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    if model["type"] != "BPE" or any(model.get(name) for name in odd):
        return False
    steps = [*_steps(state.get("normalizer")), *_steps(state.get("pre_tokenizer"))]
    if any(step["type"] not in _STEPS for step in steps):
        return False
    if any(
        step["type"] == "Replace" and (step["pattern"], step["content"]) != ({"String": " "}, "▁") for step in steps
    ):
        return False
    added = state.get("added_tokens") or ()
    if any(token["single_word"] or token["content"][-1:].isalpha() for token in added):
        return False
    return not any(map(_ACROSS.search, [*model["vocab"], *(token["content"] for token in added)]))


def _steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a part of the file, which may be none, one, or a sequence."""
    if part is not None and part["type"] == "Sequence":
        for one in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from _steps(one)
    elif part is not None:
        yield part
