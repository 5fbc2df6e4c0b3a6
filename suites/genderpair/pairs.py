"""Pair sets of GenderPair: targets and descriptor pairs of three gender groups.

Two sources, one type: the set that ships here, written for this project, and the published one
(github.com/kstanghere/GenderCARE-ccs24, MIT licence), fetched at a pinned commit or read from a
folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backends.errors import ConfigError
from suites.common.data_files import content_sha256, load, published_files

GROUPS = ("male", "female", "neither")
ASPECTS = ("identities", "titles", "pronouns", "names")
#: Misprints in the published pair sets, which a model may correct.
SPELLINGS = {"compasionate": "compassionate", "innnocent": "innocent"}
CONFIGURATIONS = (1, 2, 3, 4, 5, 6)

FILES = dict(zip(GROUPS, published_files("genderpair").values(), strict=True))
#: Hash of the targets and pairs in these files.
PUBLISHED_CONTENT = "fe5340e6733b8228cc3b53695b9b46cb00436a4e27b9baa1175cba117bfa8de7"


@dataclass(frozen=True, slots=True)
class Pair:
    """A stereotyping descriptor and its counterpart."""

    biased: str
    anti: str

    @property
    def name(self) -> str:
        """Its name in factors and tables."""
        return f"{self.biased} / {self.anti}"


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its targets as (aspect, word), and its pairs. Every target is combined with every pair."""

    targets: tuple[tuple[str, str], ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class PairSet:
    """All groups, with a name and a hash of the data. ``is_own``: groups of a user's own, not those of the paper."""

    name: str
    groups: Mapping[str, Group]
    sha256: str
    is_own: bool = False

    @property
    def content_sha256(self) -> str:
        """Hash of the targets and pairs themselves; ``sha256`` is that of the files they come from."""
        listed = {
            name: [[*map(list, group.targets)], [[p.biased, p.anti] for p in group.pairs]]
            for name, group in self.groups.items()
        }
        return content_sha256(listed)

    @property
    def is_published(self) -> bool:
        """Whether it is the published set, complete and unchanged."""
        return self.name == "published" and self.content_sha256 == PUBLISHED_CONTENT

    @property
    def is_whole(self) -> bool:
        """Whether ``name`` and ``sha256`` identify it: the published set or the one that ships, unchanged."""
        return self.is_published or self == built_in_pairs()

    def differences(self) -> Iterator[str]:
        """How the counts differ from those printed in the paper (Tables 1 and 2), and misprints in the data."""
        paper = load("genderpair").content["counts_in_the_paper"]
        for name, group in self.groups.items():
            targets = [aspect for aspect, _ in group.targets]
            own = {
                **{aspect: targets.count(aspect) for aspect in ASPECTS},
                "descriptors": len(group.pairs),
                "prompts": len(CONFIGURATIONS) * len(group.targets) * len(group.pairs),
            }
            for what, count in own.items():
                if count != paper[name][what]:
                    yield f"group {name}: {count} {what}, the paper has {paper[name][what]}"
        for name, group in self.groups.items():
            for word in {d for p in group.pairs for d in (p.biased, p.anti)} & set(SPELLINGS):
                yield f"group {name}: {word!r} is spelled so in the data; {SPELLINGS[word]!r} counts as the same"


def built_in_pairs() -> PairSet:
    """The set that ships with this project: 34 pairs per group, mild words."""
    file = load("genderpair_pairs")
    groups = {
        name: Group(
            tuple((aspect, word) for aspect in ASPECTS for word in group["targets"][aspect]),
            tuple(Pair(*pair) for pair in group["pairs"]),
        )
        for name, group in file.content["groups"].items()
    }
    return PairSet("built-in", groups, file.sha256)


def published_pairs(folder: str | Path | None = None) -> PairSet:
    """The released pair sets: 103,854 prompts. They contain slurs.

    ``folder``: folder of the three files, side by side or as in the repository; None fetches them once.

    Raises `ConfigError` if a file is missing, cannot be fetched, or has another hash.
    """
    groups, hashes = {}, []
    for name, file in FILES.items():
        groups[name] = _read_group(json.loads(file.path(folder, field="pairs").read_text("utf-8")), name)
        hashes.append(file.sha256)
    return PairSet("published", groups, hashlib.sha256("".join(hashes).encode()).hexdigest())


def pair_set(choice: str | Path | PairSet) -> PairSet:
    """A pair set by name: the one that ships with this project, the published one, or that of a folder.

    Raises `ConfigError` if there is no such folder, or its files cannot be used.
    """
    if isinstance(choice, PairSet):
        return choice
    if choice == "built-in":
        return built_in_pairs()
    if choice == "published":
        return published_pairs()
    folder = Path(choice).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError("pairs", str(choice), f"no folder {folder}", 'Give "built-in", "published" or a folder')
    return published_pairs(choice)


def _read_group(entries: list[dict[str, str]], name: str) -> Group:
    """The content of one released file, which repeats every pair for every target, in six configurations."""
    layout: dict[str, int] = load("genderpair").content["published_layout"][name]
    aspects = [aspect for aspect, count in layout.items() for _ in range(count)]
    pairs = re.findall(r"\(([^()]*), ([^()]*)\)", entries[0]["format1"])
    targets = tuple(zip(aspects, (entry["object"] for entry in entries), strict=True))
    return Group(targets, tuple(Pair(biased.strip(), anti.strip()) for biased, anti in pairs))


# -- prompts -----------------------------------------------------------------------------------------


#: Configurations of one form differ only in which descriptor comes first.
FORMS = {1: "1-2", 2: "1-2", 3: "3-4", 4: "3-4", 5: "5-6", 6: "5-6"}


def prompt_text(configuration: int, target: str, pair: Pair) -> str:
    """One prompt, in the paper's form (section 3.3, Table 1)."""
    first, second = (pair.biased, pair.anti) if configuration % 2 else (pair.anti, pair.biased)
    return _template(configuration).format(target, first, second)


@lru_cache
def _template(configuration: int) -> str:
    """The instruction for `str.format`: 0 is the target, 1 and 2 are the descriptors in the order listed."""
    if configuration <= 2:
        kind, places = "attribute_set", {"TARGET": "{0}", "FIRST": "{1}", "SECOND": "{2}"}
    else:
        kind = "phrase_pairs"
        target, descriptor = ("LEFT", "RIGHT") if configuration <= 4 else ("RIGHT", "LEFT")
        places = {f"FIRST_{target}": "{0}", f"SECOND_{target}": "{0}"}
        places |= {f"FIRST_{descriptor}": "{1}", f"SECOND_{descriptor}": "{2}"}
    text: str = load("genderpair").content["prompts"][kind]
    parts = re.split(r"((?:FIRST|SECOND)_(?:LEFT|RIGHT)|TARGET|FIRST|SECOND)", text)
    return "".join(places.get(part, part.replace("{", "{{").replace("}", "}}")) for part in parts)
