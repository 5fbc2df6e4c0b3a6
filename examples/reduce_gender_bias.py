"""Reduce a small model's gender bias by fine-tuning, and audit what that changed.

    python examples/reduce_gender_bias.py                      # built-in pairs; minutes on two cores
    python examples/reduce_gender_bias.py --data FOLDER        # the published debiasing set of GenderCARE
    python examples/reduce_gender_bias.py --questions arc.toml   # also facts, by a file of kind "choices"

A LoRA (package peft, in the extra `hf`) learns to pick the descriptor that does not stereotype. The audit asks only
about pairs without a word that is learned. Then base and adapter are audited side by side. The report's attribution
ladder says what the adapter changed, item by item: how often the stereotyping descriptor is picked, which gender goes
with an occupation (which was not trained), and whether plain text is still predicted as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from audit import Audit, StoredResult
from backends import HFBackend
from backends.embedded import smollm2_path
from backends.errors import ConfigError
from suites import GenderPair, GeneralAbility, OccuGender, Suite, from_file
from suites.genderpair.pairs import CONFIGURATIONS, PairSet, built_in_pairs, prompt_text

#: Fewer pairs of a group say nothing about it.
FEWEST_PAIRS = 5
SOURCE = "https://github.com/kstanghere/GenderCARE-ccs24"
PUBLISHED = ("merged_3groups_ft_train.json", "merged_3groups_ft_validate.json")
#: The text to learn for each pick. The published set has longer sentences.
SENTENCES = ("The {target} is {{{anti}}}.", "Here is a text about {target}, who is known as {{{anti}}}.")


def learned_pairs() -> PairSet:
    """Every second pair of each group."""
    pairs = built_in_pairs()
    groups = {name: replace(group, pairs=group.pairs[::2]) for name, group in pairs.groups.items()}
    return PairSet("built-in, learned", groups, pairs.sha256)


def held_out_pairs(learned: Sequence[tuple[str, str]]) -> PairSet:
    """The pairs without any word that these lessons hold, in the prompt or in the text to learn."""
    pairs = built_in_pairs()
    words = {word for group in pairs.groups.values() for p in group.pairs for word in (p.biased, p.anti)}
    any_of = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)
    taught = {word.casefold() for text in {*itertools.chain(*learned)} for word in any_of.findall(text)}
    groups = {
        name: replace(
            group, pairs=tuple(p for p in group.pairs if not {p.biased.casefold(), p.anti.casefold()} & taught)
        )
        for name, group in pairs.groups.items()
    }
    if few := [name for name, group in groups.items() if len(group.pairs) < FEWEST_PAIRS]:
        problem = f"holds nearly all words of {few[0]}'s pairs: fewer than {FEWEST_PAIRS} are left to ask about"
        raise ConfigError("--data", None, problem, "Take a part of it")
    return PairSet("built-in, held out", groups, pairs.sha256)


def published_lessons(data: Path) -> list[tuple[str, str]]:
    """The prompts and sentences of the published set. Raises ConfigError for a folder or file that is none."""
    found = [data / name for name in PUBLISHED if (data / name).is_file()]
    if not found:
        problem = f"contains none of {', '.join(PUBLISHED)}" if data.is_dir() else "no such folder"
        raise ConfigError("--data", str(data), problem, f"Put one there from {SOURCE}")
    try:
        return [(str(row["prompt"]), str(row["sentence"])) for row in json.loads(found[0].read_text("utf-8"))]
    except (ValueError, KeyError, TypeError) as error:
        problem = f"not a JSON list of objects with prompt and sentence ({type(error).__name__}: {error})"
        raise ConfigError("--data", str(found[0]), problem, f"Take the unchanged file from {SOURCE}") from None


def lessons(data: Path | None, seed: int) -> list[tuple[str, str]]:
    """Prompts with the texts to learn, shuffled."""
    if data is not None:
        texts = published_lessons(data)
    else:
        texts = [
            (prompt_text(configuration, target, pair), sentence.format(target=target, anti=pair.anti))
            for group in learned_pairs().groups.values()
            for _, target in group.targets
            for pair in group.pairs
            for configuration in CONFIGURATIONS
            for sentence in SENTENCES
        ]
    random.Random(seed).shuffle(texts)
    return texts


def fine_tune(texts: Sequence[tuple[str, str]], out: Path, *, steps: int, batch: int, seed: int) -> list[float]:
    """Train a LoRA on the texts' tokens, without those of the prompts, and save it. Returns the loss of each step."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    path = smollm2_path()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    base = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-4)
    end, losses = tokenizer.eos_token_id, []
    for step in range(steps):
        rows = []
        for prompt, text in (texts[(step * batch + i) % len(texts)] for i in range(batch)):
            asked, answer = (tokenizer(part)["input_ids"] for part in (prompt + "\n", text))
            rows.append(([*asked, *answer, end], len(asked)))
        width = max(len(ids) for ids, _ in rows)
        inputs = torch.tensor([ids + [end] * (width - len(ids)) for ids, _ in rows])
        labels = torch.tensor([[-100] * n + ids[n:] + [-100] * (width - len(ids)) for ids, n in rows])
        mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
        loss = model(input_ids=inputs, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 10 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(out)
    return losses


def suites_of(learned: Sequence[tuple[str, str]], questions: Path | None) -> list[Suite]:
    """What is asked. Made before the training, so that a mistake costs none."""
    return [
        GenderPair(pairs=held_out_pairs(learned), sampling={"max_tokens": 24}, toxicity=None, regard=None),
        OccuGender(["implicit"]),
        GeneralAbility(),
        *([] if questions is None else [from_file(questions)]),
    ]


def audit_of(adapter: Path, suites: Sequence[Suite], out: Path, limit: int | None) -> Audit:
    """Base and adapter, side by side."""
    path = smollm2_path()
    return Audit(
        title="SmolLM2-135M before and after fine-tuning against gender bias",
        models={
            "base": HFBackend(path, dtype="float32"),
            "fine-tuned": HFBackend(path, dtype="float32", adapter=adapter),
        },
        suites=suites,
        limit=limit,
        db=out / "audit.db",
        out=out,
    )


def reduce(given: argparse.Namespace) -> StoredResult:
    """Fine-tune, audit, write the report, and print what the adapter changed."""
    adapter, learned = given.out / "adapter", lessons(given.data, given.seed)
    suites = suites_of(learned, given.questions)
    fine_tune(learned, adapter, steps=given.steps, batch=given.batch, seed=given.seed)
    result = audit_of(adapter, suites, given.out, given.limit).run_sync()
    result.write()
    return result


def _count(given: str) -> int:
    number = int(given)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the published debiasing set")
    parser.add_argument("--questions", type=Path, help="a suite's file of kind choices")
    parser.add_argument("--steps", type=_count, default=30)
    parser.add_argument("--batch", type=_count, default=4)
    parser.add_argument("--limit", type=_count, default=200, help="items of each suite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("audit-out/reduction"))
    given = parser.parse_args()
    try:
        result = reduce(given)
    except ConfigError as error:
        parser.exit(2, f"Error: {error}\n")
    if not result.complete:
        print("Interrupted: the same command with the same --out goes on, but trains first.")
    for m in result.measures:
        if m.spec.primary and m.value is not None:
            print(f"{m.suite} {m.measure} {dict(m.where)} {m.model}: {m.value} [{m.low}, {m.high}]")
    print(f"{given.out}/report.html")


if __name__ == "__main__":
    main()
