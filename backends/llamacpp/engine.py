"""A model loaded by llama.cpp: its weights, its tokenizer, its chat template."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp

from backends.errors import BackendError, ConfigError
from backends.local.boundary import Vocabulary
from backends.local.encoder import TextEncoder
from backends.local.gguf_header import longrope_cells, read_gguf_header

#: llama.cpp's last errors, newest last: a failure itself is a return value without a reason.
_complaints: deque[str] = deque(maxlen=2)
_ERROR = 4  # GGML_LOG_LEVEL_ERROR


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _keep_complaints(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    """Discard all log lines but errors: llama.cpp writes hundreds to stderr."""
    if level == _ERROR:
        _complaints.append(text.decode("utf-8", "replace").strip())


class LlamaEngine(TextEncoder):
    """A loaded model and its tokenizer. Each user creates a context of its own.

    Parameters
    ----------
    path : Path
        GGUF file.
    n_gpu_layers, threads : int
    context : int or None
        Maximum tokens of one sequence; None: the length that the model was trained on.
    vocab_only : bool
        Load the tokenizer alone.

    Raises
    ------
    ConfigError
        When llama.cpp cannot load the file: gives its own reason.
    BackendError
        ``unsupported``: encoder and diffusion models.

    Attributes
    ----------
    model, vocab
        llama.cpp's ``llama_model *`` and ``llama_vocab *``, valid until `close`.
    n_ctx : int
        Maximum tokens of one sequence.
    most_cells : int or None
        Maximum cells of a context, see `longrope_cells`; ``n_ctx`` does not exceed it.
    threads : int
    chat_template : str or None
    """

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int = 0,
        threads: int = 1,
        context: int | None = None,
        vocab_only: bool = False,
        enable_thinking: bool | None = None,
    ) -> None:
        llama_cpp.llama_log_set(_keep_complaints, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.vocab_only = vocab_only
        _complaints.clear()
        self.model: Any = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            reason = f"llama.cpp cannot load it ({'; '.join(_complaints) or 'it gives no reason'})"
            raise ConfigError("model", str(path), reason, "Give a whole file, of a kind that this llama.cpp knows")
        header = read_gguf_header(path)
        if llama_cpp.llama_model_has_encoder(self.model) or llama_cpp.llama_model_is_diffusion(self.model):
            self.close()
            raise BackendError(
                "unsupported",
                f"a {header['general.architecture']} model does not generate from left to right, token by token",
                hint="give a causal language model",
            )
        self.vocab: Any = llama_cpp.llama_model_get_vocab(self.model)
        self.threads = threads
        trained = llama_cpp.llama_model_n_ctx_train(self.model)
        self.n_ctx: int = trained if context is None else context
        self.most_cells = longrope_cells(path, header)
        if self.most_cells is not None:
            self.n_ctx = min(self.n_ctx, self.most_cells)
        template = llama_cpp.llama_model_chat_template(self.model, None)
        super().__init__(template.decode() if template else None, enable_thinking)
        self._bos: int = llama_cpp.llama_vocab_bos(self.vocab)
        self._adds_bos = bool(llama_cpp.llama_vocab_get_add_bos(self.vocab)) and self._bos >= 0
        self._piece_buffer = ctypes.create_string_buffer(4096)

    def close(self) -> None:
        """Free the weights. May be called more than once."""
        if self.model:
            llama_cpp.llama_model_free(self.model)
            self.model = None

    @property
    def shares_cells(self) -> bool:
        """Whether sequences can share a prefix; the state of a recurrent layer belongs to one sequence."""
        return not (llama_cpp.llama_model_is_recurrent(self.model) or llama_cpp.llama_model_is_hybrid(self.model))

    # -- tokens ---------------------------------------------------------------------------------

    def _special_tokens(self) -> Mapping[str, str]:
        tokens = {"bos_token": self._bos, "eos_token": llama_cpp.llama_vocab_eos(self.vocab)}
        others = {"sep_token": llama_cpp.llama_vocab_sep, "pad_token": llama_cpp.llama_vocab_pad}
        tokens |= {name: token for name, read in others.items() if (token := read(self.vocab)) >= 0}
        return {name: self._token_text(token) for name, token in tokens.items()}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, with exactly one BOS in front if the model wants it, whether or not a template wrote it.

        llama.cpp's own server also adds it to a chat whose template writes none.
        """
        encoded = []
        for text in texts:
            tokens = self.tokenize(text)
            self.refuse_unknown(text, tokens)
            if self._adds_bos and tokens[:1] != [self._bos]:
                tokens.insert(0, self._bos)
            encoded.append(tokens)
        return encoded

    def added(self, tokens: Sequence[int], text: str) -> int:
        """1 when `encode` put BOS in front, else 0."""
        return int(tokens[:1] == [self._bos] and not text.startswith(self._token_text(self._bos)))

    def tokenize(self, text: str) -> list[int]:
        """Tokens of a text, without BOS; special tokens written in it are parsed, as transformers does."""
        data = text.encode("utf-8", "surrogatepass")
        tokens = (llama_cpp.llama_token * (len(data) + 8))()  # a token is a byte or more, but for those put in front
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), tokens, len(tokens), False, True)
        if count < 0:
            raise BackendError("internal", "llama.cpp makes more tokens of this text than it has bytes")
        return list(tokens[:count])

    def visible(self, token: int) -> bytes:
        """As in `TextEncoder`."""
        return b"" if llama_cpp.llama_vocab_is_control(self.vocab, token) else self.piece(token)

    @cached_property
    def unknown(self) -> Mapping[int, str]:
        """As in `TextEncoder`: such a token is among the first of a vocabulary."""
        first = range(min(1000, llama_cpp.llama_vocab_n_tokens(self.vocab)))
        found = [i for i in first if llama_cpp.llama_vocab_get_attr(self.vocab, i) & llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN]
        return {token: self._token_text(token) for token in found}

    @cached_property
    def control(self) -> Sequence[str]:
        """As in `TextEncoder`."""
        size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        return [self._token_text(i) for i in range(size) if llama_cpp.llama_vocab_is_control(self.vocab, i)]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """All tokens' texts."""
        size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        control = {i for i in range(size) if llama_cpp.llama_vocab_is_control(self.vocab, i)}
        return Vocabulary([self.piece(i) for i in range(size)], control)

    def _token_text(self, token: int) -> str:
        return "" if token < 0 else llama_cpp.llama_vocab_get_text(self.vocab, token).decode("utf-8", "replace")

    def _read_piece(self, token: int) -> bytes:
        length = llama_cpp.llama_token_to_piece(self.vocab, token, self._piece_buffer, len(self._piece_buffer), 0, True)
        if length < 0:
            self._piece_buffer = ctypes.create_string_buffer(-length)
            length = llama_cpp.llama_token_to_piece(
                self.vocab, token, self._piece_buffer, len(self._piece_buffer), 0, True
            )
        return self._piece_buffer.raw[:length]
