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
from pathlib import Path

from backends.errors import ConfigError
from suites.common.data_files import PinnedFile, content_sha256, load
from suites.genderpair.selection import SPELLINGS

GROUPS = ("male", "female", "neither")
ASPECTS = ("identities", "titles", "pronouns", "names")
CONFIGURATIONS = (1, 2, 3, 4, 5, 6)

_BASE = (
    "https://raw.githubusercontent.com/kstanghere/GenderCARE-ccs24/942d13525e8a029df11bae5271aa3cb5db48b1a0/"
    "Datasets/Assess_Gender_Bias/Our_Benchmark_GenderPair/pair_sets/"
)
#: The published files, one per group, at a fixed commit.
FILES = {
    "male": PinnedFile(
        _BASE + "group1/group1_pairset.json", "687aaeced86d35abd3246aefa3c32ec6225d4c5e01fd46a372d36a2886fea181"
    ),
    "female": PinnedFile(
        _BASE + "group2/group2_pairset.json", "8b6d952ea2390009722b4fa4d758896b687f2caf320b46c26256b9af964babd3"
    ),
    "neither": PinnedFile(
        _BASE + "group3/group3_pairset.json", "7af0ffbbef668f4b0cd32bb20da7681590609cb0bb9e9ab58d15dc22d5b54b48"
    ),
}
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

    Parameters
    ----------
    folder : path, optional
        Folder of the three files, side by side or as in the repository; None fetches them once.

    Raises
    ------
    ConfigError
        If a file is missing, cannot be fetched, or has another hash.
    """
    groups, hashes = {}, []
    for name, file in FILES.items():
        groups[name] = _read_group(json.loads(file.path(folder, field="pairs").read_text("utf-8")), name)
        hashes.append(file.sha256)
    return PairSet("published", groups, hashlib.sha256("".join(hashes).encode()).hexdigest())


def pair_set(choice: str | Path | PairSet) -> PairSet:
    """A pair set by name: the one that ships with this project, the published one, or that of a folder.

    Raises
    ------
    ConfigError
        If there is no such folder, or its files cannot be used.
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
