"""Chat rendering against transformers, and what it refuses."""

from __future__ import annotations

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from backends import BackendError
from backends.base import Message
from backends.local.chat_template import render_chat

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LISTS = """{{ bos_token }}
{%- for message in messages %}
    {%- if loop.index0 % 2 != (message.role != 'user') | int %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {{- '[' + message.role + ']' + message.content | trim + eos_token }}
    {{- {'é': '<'} | tojson }}
{%- endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}"""
# As SmolLM3 and Phi-4-reasoning have it; transformers' own training reads a mask of answers from such blocks.
MARKED = """{%- for message in messages %}
    {%- if message.role == "assistant" %}
    {% generation %}
    {{ "<|a|>" + message.content }}
        {%- set last = message.content %}
    {%- endgeneration %}
    {% else %}
    {{- "<|u|>" + message.content + last | default("nothing") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|a|>{% endif %}"""
WITHOUT_TOOLS = """{% if tools is not none %}tools!{% endif %}{% if documents is not none %}documents!{% endif %}
{%- for message in messages %}{{ message.content }}{% endfor %}{{ {"b": 1, "a": "é"} | tojson(sort_keys=True) }}"""
TURNS = (Message("user", "Who is she? "), Message("assistant", "A nurse."), Message("user", "Sure?"))


@pytest.mark.parametrize("template", [CHATML, LISTS, MARKED, WITHOUT_TOOLS])
def test_a_new_answer_is_opened_as_transformers_does(template: str) -> None:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    turns = [{"role": m.role, "content": m.content} for m in TURNS]
    (expected,), _ = render_jinja_template([turns], chat_template=template, add_generation_prompt=True, **special)
    assert render_chat(template, TURNS, special) == expected


def test_started_answer_keeps_its_last_space() -> None:
    text = render_chat(CHATML, (*TURNS, Message("assistant", "Yes, the nurse. ")), {})
    assert text.endswith("<|im_start|>assistant\nYes, the nurse. ")
    assert text.startswith(render_chat(CHATML, TURNS, {}))


def test_started_answer_within_a_block_is_continued() -> None:
    text = render_chat(MARKED, (*TURNS, Message("assistant", "Yes, ")), {})
    assert text.endswith("<|a|>Yes, ")
    assert text.startswith(render_chat(MARKED, TURNS, {}).removesuffix("<|a|>"))


def test_template_refusal_is_an_error_with_its_words() -> None:
    with pytest.raises(BackendError, match="roles must alternate") as error:
        render_chat(LISTS, (Message("assistant", "x"), Message("assistant", "y")), {"bos_token": "", "eos_token": ""})
    assert error.value.kind == "unsupported"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ 1 / 0 }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ [1].__subclasses__() }}", "refuses these messages"),
        ("{{ messages[0].content }}", "drops the assistant prefill"),
    ],
)
def test_a_template_that_fails_is_an_error_not_a_crash(template: str, says: str) -> None:
    with pytest.raises(BackendError, match=says) as error:
        render_chat(template, (*TURNS, Message("assistant", "y")), {})
    assert error.value.kind == "unsupported"


def test_a_printed_date_is_the_same_every_day() -> None:
    assert render_chat("{{ strftime_now('%d %B %Y') }}", TURNS, {}) == "26 July 2024"


def test_a_template_that_is_cut_off_is_called_damaged() -> None:
    """It was told to change the messages."""
    with pytest.raises(BackendError, match=r"chat template is damaged: .*line 2") as error:
        render_chat("{% for m in messages %}\n{{ m.content", (Message("user", "hi"),), {})
    assert "fetch" in str(error.value)
