"""A transformers tokenizer as scoring needs it: the bytes of every token, and at most one BOS."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from backends.errors import BackendError, one_line
from backends.local.boundary import Vocabulary
from backends.local.encoder import TextEncoder
from backends.local.trie import common_start

#: The end of the longest match is where a text is cut: the last place of this kind.
CUT = re.compile(r".*[A-Za-z](?= [A-Za-z])", re.DOTALL)
#: What ends of texts are encoded behind: the shortest text that may stand before a cut.
ANCHOR = "a"
#: Characters of a start that is worth a cut.
LONG_START = 100

#: The steps before BPE that read a text by classes of characters or by expressions over words.
_STEPS = {"NFC", "Replace", "Prepend", "ByteLevel", "Metaspace", "Split", "Digits"}
_ACROSS = re.compile("[A-Za-z][ Ġ▁]")


class HFTextEncoder(TextEncoder):
    """`TextEncoder` over a transformers tokenizer.

    Parameters
    ----------
    tokenizer
        A tokenizer with a Rust backend.
    enable_thinking : bool, optional
        As in `render_chat`.

    Raises
    ------
    BackendError
        ``unsupported``, for a tokenizer without one, and if the exact bytes of its tokens are unknown.
    """

    def __init__(self, tokenizer: Any, enable_thinking: bool | None = None) -> None:
        template = getattr(tokenizer, "chat_template", None)
        if isinstance(template, dict):  # named templates; "default" is the plain chat
            template = template.get("default")
        super().__init__(template, enable_thinking)
        self._tokenizer = tokenizer
        self._rust: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._rust is None:
            raise BackendError(
                "unsupported",
                f"{type(tokenizer).__name__} is written in Python and does not expose the bytes of its tokens",
                hint="give a tokenizer.json with the model, or use LlamaCppBackend",
            )
        # Some files store these settings, but a padded or truncated text is a different text.
        self._rust.no_padding()
        self._rust.no_truncation()
        sample = self._readable()
        plain = self._rust.encode(sample, add_special_tokens=False).ids
        whole = self._rust.encode(sample, add_special_tokens=True).ids
        # Tokens in front are kept; those that some tokenizers append (EOS) would end the text too early.
        before = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
        # A file may add BOS twice, once by itself and once by a template.
        self._front: list[int] = [token for token, _ in groupby(whole[:before])]
        self._added = {i: token.content for i, token in tokenizer.added_tokens_decoder.items()}
        self._front_text = "".join(self._added.get(i, "") for i in self._front)
        self._control = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        state = json.loads(self._rust.to_str())
        self._bytes_of = _byte_level_table() if _is_byte_level(state) else None
        self._cuts = cuts_at_words(state)

    def _readable(self) -> str:
        """A short text that has tokens: some tokenizers drop what their vocabulary lacks."""
        usual = "a"
        if self._rust.encode(usual, add_special_tokens=False).ids:
            return usual
        names = sorted(name for name in self._rust.get_vocab(with_added_tokens=False) if len(name) == 1)
        return next((name for name in names if self._rust.encode(name, add_special_tokens=False).ids), usual)

    def _special_tokens(self) -> Mapping[str, str]:
        return {name: str(token) for name, token in self._tokenizer.special_tokens_map.items()}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, with the tokenizer's BOS in front once, whether or not a chat template writes it."""
        return self._with_front(texts, self._own_tokens(texts))

    def encode_alike(self, texts: Sequence[str]) -> list[list[int]]:
        """As in `TextEncoder`: of a long start that all share the tokens are found once."""
        first, last = min(texts, default=""), max(texts, default="")
        start = first[: common_start(first, last)]
        if len(texts) > 2 and (cut := self.cut(start)) > LONG_START:
            *wholes, head = self._own_tokens([texts[0], texts[-1], start[:cut]])
            with contextlib.suppress(BackendError):
                found = [head + end for end in self.encode_endings([text[cut:] for text in texts])]
                if [found[0], found[-1]] == wholes:
                    return self._with_front(texts, found)
        return self.encode(texts)

    def _with_front(self, texts: Sequence[str], found: list[list[int]]) -> list[list[int]]:
        for text, ids in zip(texts, found, strict=True):
            self.refuse_unknown(text, ids)
        if self._front:
            found = [ids if ids[: len(self._front)] == self._front else self._front + ids for ids in found]
        return found

    def cut(self, text: str) -> int:
        """As in `TextEncoder`; see `cuts_at_words`."""
        found = CUT.match(text) if self._cuts else None
        return 0 if found is None else found.end()

    def encode_endings(self, texts: Sequence[str]) -> list[list[int]]:
        """As in `TextEncoder`."""
        before, *found = self._own_tokens([ANCHOR, *(ANCHOR + text for text in texts)])
        if any(ids[: len(before)] != before for ids in found):
            raise BackendError("internal", f"the tokens of a text's end change those of {ANCHOR!r} before it")
        return [ids[len(before) :] for ids in found]

    def _own_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, without those that are put in front or behind."""
        try:
            return [e.ids for e in self._rust.encode_batch_fast(list(texts), add_special_tokens=False)]
        except BaseException as error:
            if type(error).__module__ != "pyo3_runtime":  # a panic in Rust is no `Exception`, and would end the run
                raise
            raise BackendError(
                "bad_request",
                f"the tokenizer's library failed on this text: {one_line(error)}",
                hint="write it otherwise, as with fewer spaces and line breaks in a row",
            ) from None

    def keeps_head(self, head: Sequence[int]) -> bool:
        """Whether a BOS that the text itself begins with would be all in the head."""
        return len(head) > 2 * len(self._front)

    def added(self, tokens: Sequence[int], text: str) -> int:
        """How many tokens `encode` put in front."""
        front = self._front
        written = text.startswith(self._front_text)
        return 0 if written or list(tokens[: len(front)]) != front else len(front)

    @cached_property
    def unknown(self) -> Mapping[int, str]:
        """As in `TextEncoder`; a token that also ends or begins texts stands for no unknown part."""
        token, shared = self._tokenizer.unk_token_id, (self._tokenizer.bos_token_id, self._tokenizer.eos_token_id)
        return {} if token is None or token in shared else {token: str(self._tokenizer.unk_token)}

    @cached_property
    def control(self) -> Sequence[str]:
        """As in `TextEncoder`."""
        return [str(self._added[token]) for token in self._control]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """All tokens' texts."""
        size = max(self._rust.get_vocab(with_added_tokens=True).values()) + 1
        return Vocabulary([self.piece(i) for i in range(size)], self._control)

    def visible(self, token: int) -> bytes:
        """As in `TextEncoder`."""
        return b"" if token in self._control else self.piece(token)

    def _read_piece(self, token: int) -> bytes:
        if token in self._added:
            return str(self._added[token]).encode()
        name: str | None = self._rust.id_to_token(token)
        if name is None:  # an unused id
            return b""
        if self._bytes_of is not None:
            # A name outside the alphabet is literal text, as for the tokenizer's own decoder.
            of = self._bytes_of
            return bytes(of[c] for c in name) if all(c in of for c in name) else name.encode("utf-8", "surrogatepass")
        if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:5], 16)])
        return name.replace("▁", " ").encode("utf-8", "surrogatepass")


def _is_byte_level(state: dict[str, Any]) -> bool:
    """Whether token names are in byte-level BPE's alphabet; False for ▁ and <0x..> names.

    Raises
    ------
    BackendError
        ``unsupported`` for other decoders: the exact bytes of their tokens are unknown.
    """
    decoder = state.get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return True
    if kinds <= {"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"} and kinds & {"Metaspace", "Replace"}:
        return False
    raise BackendError("unsupported", f"a tokenizer with the decoder {kinds}", hint="use a byte-level or ▁ tokenizer")


def _byte_level_table() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable bytes stand for themselves, the others follow from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


def cuts_at_words(state: Mapping[str, Any]) -> bool:
    """Whether a tokenizer, given its file, allows texts to be cut at `CUT`, before a space between two ASCII letters.

    "… the nurse| said" has the tokens of "… the nurse", and then those that " said" has behind any text that ends in
    such a letter: BPE makes nothing but tokens of its vocabulary, so where none of them holds a letter and then a
    space, it merges nothing across the cut. That no step before it looks across is tried by `backends.local.plans` with
    each new end, and here with each shared start, on whole texts.
    """
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
