"""Render chat messages with the model's own chat template.

Both local engines use this renderer, so that the same messages become the same text on each.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from backends.base import Message
from backends.errors import BackendError

# Templates that print today's date get this one: the same request must be the same text tomorrow.
FIXED_DATE = datetime.datetime(2024, 7, 26)
# Marks where an assistant prefill ends, by a private-use character that does not occur in prompts.
_END_OF_PREFILL = "\uf8ffend of prefill\uf8ff"


def render_chat(
    template: str,
    messages: tuple[Message, ...],
    special_tokens: Mapping[str, str],
    enable_thinking: bool | None = None,
) -> str:
    """The prompt's text, up to where the answer (or its continuation) starts.

    Parameters
    ----------
    template : str
        The model's Jinja template, run in a sandbox.
    messages : tuple of Message
        A last message of role ``assistant`` is continued; otherwise a new answer is opened.
    special_tokens : mapping
        ``bos_token``, ``eos_token``… by the names that templates use.
    enable_thinking : bool, optional
        Passed to templates of reasoning models; None: the template's own default.

    Raises
    ------
    BackendError
        ``unsupported``, when the template refuses these messages or drops the assistant prefill.
    """
    turns = [{"role": m.role, "content": m.content} for m in messages]
    continues = bool(turns) and turns[-1]["role"] == "assistant"
    if continues:
        turns[-1]["content"] += _END_OF_PREFILL
    # As in transformers: templates that test `tools is none` need the name defined.
    names = {"tools": None, "documents": None, "add_generation_prompt": not continues, **special_tokens}
    if enable_thinking is not None:
        names["enable_thinking"] = enable_thinking
    try:
        text = _environment().from_string(template).render(messages=turns, **names)
    except jinja2.TemplateSyntaxError as error:
        raise BackendError(
            "unsupported",
            f"the model's chat template is damaged: {error.message} (line {error.lineno})",
            hint="fetch the model's chat_template or tokenizer_config.json again",
        ) from None
    except Exception as error:  # a template is foreign code: it may fail in any way
        raise BackendError(
            "unsupported", f"the model's chat template refuses these messages: {error}", hint="change the messages"
        ) from error
    if not continues:
        return text
    head, mark, _ = text.rpartition(_END_OF_PREFILL)
    if not mark:
        raise BackendError(
            "unsupported",
            "the model's chat template drops the assistant prefill",
            hint="use a prompt without a prefill",
        )
    return head


class _AnswerBlocks(jinja2.ext.Extension):
    """``{% generation %}`` marks answers for a training mask; it renders as its body.

    As in transformers, the body is a macro's, so that a name set within it is undefined after it.
    """

    tags = {"generation"}  # noqa: RUF012 - so jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_as_it_stands"), [], [], body).set_lineno(line)

    def _as_it_stands(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    # Templates are written for block trimming, loop controls and these names.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _AnswerBlocks]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = FIXED_DATE.strftime
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own tojson escapes for HTML; templates expect plain JSON.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
