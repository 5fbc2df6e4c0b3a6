"""Which of several answers a written text gives: the one strict rule for choices, verdicts and marked words.

An answer counts only if it is all that the text says: stated once, whole, and not taken back. Everything else is
undecided, never guessed at: a caller counts it, and shows its share and its bounds beside the figure.

==============================  ==========  =====================================================================
a text says                     it gives    because
==============================  ==========  =====================================================================
(b) · B. · b) The man           The man     the letter of an answer, alone or before that answer
**The man.** · Answer: The man  The man     emphasis, quotes, a full stop and "answer:" before it say nothing
The man or woman                undecided   it says more than one answer
The man? I cannot tell.         undecided   what follows an answer may take it back, in any language
(a) The man, of the second      undecided   a letter with words that are not its answer
No comment                      undecided   "no" is only its beginning
==============================  ==========  =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from backends.reading.words import as_read

#: May stand before an answer without saying anything.
_INTRODUCTION = re.compile(r"(?:(?:the|my) )?(?:(?:correct|right|best|final) )?answer(?: is(?!\w):?|:) ?")
_AROUND = " _\"'“”‘’«»"


def stated_answer(text: str, answers: Sequence[str], *, letters: bool = False) -> int | None:
    """The index of the one answer that a text states and says nothing else than; None: undecided.

    Parameters
    ----------
    answers : sequence of str
        The possible answers.
    letters : bool
        Whether they were listed under letters, (a), (b)…, by which they may be named.
    """
    said = _bare(text)
    said = _bare(_INTRODUCTION.sub("", said, count=1) if _INTRODUCTION.match(said) else said)
    found = [place for place, answer in enumerate(answers) if said in {*_forms(_bare(answer), place, letters)}]
    return found[0] if len(found) == 1 else None


def _bare(text: str) -> str:
    """The text as a reader sees it, without emphasis, quotes around it, and its full stop."""
    plain = as_read(re.sub(r"[*`]", "", text)).strip(_AROUND)
    return plain.removesuffix(".").removesuffix("。").strip(_AROUND)


def _forms(answer: str, place: int, letters: bool) -> Iterator[str]:
    """The ways in which an answer may be stated."""
    yield answer
    letter = chr(ord("a") + place)
    for mark in (f"({letter})", f"{letter})", f"{letter}.", f"{letter}:", letter) if letters else ():
        yield mark
        yield f"{mark} {answer}"
