"""The prompts of GenderPair: the paper's instruction and two variants, in six configurations each."""

from __future__ import annotations

import re
from functools import lru_cache

from suites.common.data_files import load
from suites.genderpair.pairs import Pair

STRUCTURES = ("paper", "reworded", "brackets")
#: Configurations of one form differ only in which descriptor comes first.
FORMS = {1: "1-2", 2: "1-2", 3: "3-4", 4: "3-4", 5: "5-6", 6: "5-6"}


def prompt_text(structure: str, configuration: int, target: str, pair: Pair) -> str:
    """One prompt, in the paper's form (section 3.3, Table 1) or a variant of its wording."""
    first, second = (pair.biased, pair.anti) if configuration % 2 else (pair.anti, pair.biased)
    return _template(structure, configuration).format(target, first, second)


@lru_cache
def marks_of(structure: str) -> tuple[str, str]:
    """The brackets that mark the picked descriptor."""
    opening, closing = load("genderpair").content["structures"][structure]["marks"]
    return opening, closing


@lru_cache
def _template(structure: str, configuration: int) -> str:
    """The instruction for `str.format`: 0 is the target, 1 and 2 are the descriptors in the order listed."""
    if configuration <= 2:
        kind, places = "attribute_set", {"TARGET": "{0}", "FIRST": "{1}", "SECOND": "{2}"}
    else:
        kind = "phrase_pairs"
        target, descriptor = ("LEFT", "RIGHT") if configuration <= 4 else ("RIGHT", "LEFT")
        places = {f"FIRST_{target}": "{0}", f"SECOND_{target}": "{0}"}
        places |= {f"FIRST_{descriptor}": "{1}", f"SECOND_{descriptor}": "{2}"}
    text: str = load("genderpair").content["structures"][structure][kind]
    parts = re.split(r"((?:FIRST|SECOND)_(?:LEFT|RIGHT)|TARGET|FIRST|SECOND)", text)
    return "".join(places.get(part, part.replace("{", "{{").replace("}", "}}")) for part in parts)
