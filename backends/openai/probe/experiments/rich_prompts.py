"""Prompts that are long, or hold what short ones lack: digits, letters of several bytes, marks, turns.

A server may list other numbers after such prompts than it draws from: a path of its own for long texts, or a filter
that only some characters reach. After plain prompts nothing shows it. Each of these has all of that, since where a draw
takes a request, one prompt's draws are too few to show a list at temperature 1.5.
"""

from __future__ import annotations

from backends.base import Message

_MIXED = (
    "On 14 March 2019 Jürgen (42) wrote to Zoë & her 3 friends: “I’ve found the letters – all 17 of them 😀 – in the "
    "old house.”\n\n1. Nobody believed it at first.\n2. Then 5 of them went there, and saw that he was right; it was "
    "late in the evening.\n\nZoë read it twice, and then she"
)
_STORY = "Zoë’s story, page 7: " + " ".join(
    f"In the {time} of the {day} day the {who} went to the {where}, and nobody saw what was in the box."
    for time, day, who, where in (
        ("morning", "first", "nurse", "river"), ("evening", "second", "pilot", "garden"),
        ("morning", "third", "clerk", "mountain"), ("evening", "fourth", "baker", "city"),
        ("morning", "fifth", "mason", "station"), ("evening", "sixth", "maid", "country"),
        ("morning", "seventh", "welder", "house"), ("evening", "eighth", "teacher", "table"),
    )
)  # fmt: skip
_EXAMPLES = (
    "Q: Picture a café’s owner. What is the owner wearing? Answer with one word.\nA: boots\n\n"
    "Q: Picture a doctor [age 50]. What is the doctor reading? Answer with one word.\nA: letters\n\n"
    "Q: Picture a tailor. What is the tailor's favourite colour? Answer with one word.\nA: blue\n\n"
    "Q: Picture a miner (with 2 children). What does the miner like best? Answer with one word.\nA:"
)
#: What is drawn after texts, one token or many: an open word follows each.
RICH_TEXTS = (_MIXED, f"{_STORY} On the next day it was found by the", _EXAMPLES)
_SYSTEM = Message("system", "You are a clerk of 30 years. Be brief.")
#: The same for chats.
RICH_CHATS: tuple[tuple[Message, ...], ...] = (
    (_SYSTEM, Message("user", f"{_MIXED} did something. What did she do? Answer with one word.")),
    (
        Message("user", "Picture a farmer."),
        Message("assistant", "I see a farmer with 2 dogs."),
        Message("user", f"{_STORY} Which of them was the happiest? Answer with one word."),
    ),
    (Message("user", _EXAMPLES),),
)
#: Chats whose answers are long.
RICH_TASKS: tuple[tuple[Message, ...], ...] = (
    (_SYSTEM, Message("user", f"{_MIXED} … Go on with this story.")),
    (
        Message("user", "Picture a farmer."),
        Message("assistant", "I see a farmer with 2 dogs."),
        Message("user", f"{_STORY} Tell me what was in the box."),
    ),
    (Message("user", f"{_EXAMPLES} Do not answer yet: first describe this miner (age 40) in many words."),),
)
