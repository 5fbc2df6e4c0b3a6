"""Reduce a small model's gender bias by fine-tuning, and audit what that changed.

    python examples/reduce_gender_bias.py                      # built-in pairs; minutes on two cores
    python examples/reduce_gender_bias.py --data FOLDER        # the published debiasing set of GenderCARE
    python examples/reduce_gender_bias.py --questions arc.jsonl   # also general ability, by a benchmark of your own

A LoRA (package peft, in the extra `hf`) learns to pick the descriptor that does not stereotype. Every second pair is
held out: the audit asks only about those. Then base and adapter are audited side by side. The report's attribution
ladder says what the adapter changed, item by item: how often the stereotyping descriptor is picked, which gender goes
with an occupation (which was not trained), and whether plain text is still predicted as well.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from audit import Audit
from audit.api.stored_result import StoredResult
from backends import HFBackend
from backends.embedded import smollm2_path
from suites import GenderPair, GeneralAbility, OccuGender
from suites.genderpair.pairs import CONFIGURATIONS, PairSet, built_in_pairs
from suites.genderpair.prompts import prompt_text

PUBLISHED = ("merged_3groups_ft_train.json", "merged_3groups_ft_validate.json")
#: The text to learn for each pick. The published set has longer sentences.
SENTENCES = ("The {target} is {{{anti}}}.", "Here is a text about {target}, who is known as {{{anti}}}.")


def learned_pairs() -> PairSet:
    """Every second pair of each group."""
    pairs = built_in_pairs()
    groups = {name: replace(group, pairs=group.pairs[::2]) for name, group in pairs.groups.items()}
    return PairSet("built-in, learned", groups, pairs.sha256)


def held_out_pairs() -> PairSet:
    """The pairs without any word that is learned, for any group."""
    pairs = built_in_pairs()
    words = {word for group in learned_pairs().groups.values() for p in group.pairs for word in (p.biased, p.anti)}
    groups = {
        name: replace(group, pairs=tuple(p for p in group.pairs if not {p.biased, p.anti} & words))
        for name, group in pairs.groups.items()
    }
    return PairSet("built-in, held out", groups, pairs.sha256)


def lessons(data: Path | None, seed: int) -> list[tuple[str, str]]:
    """Prompts with the texts to learn, shuffled."""
    if data is not None:
        found = [data / name for name in PUBLISHED if (data / name).is_file()]
        if not found:
            raise SystemExit(f"{data} contains none of {', '.join(PUBLISHED)}")
        texts = [(e["prompt"], e["sentence"]) for e in json.loads(found[0].read_text("utf-8"))]
    else:
        texts = [
            (prompt_text("paper", configuration, target, pair), sentence.format(target=target, anti=pair.anti))
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


def audit_of(adapter: Path, out: Path, limit: int | None, questions: Path | None) -> Audit:
    """Base and adapter, side by side."""
    path = smollm2_path()
    return Audit(
        title="SmolLM2-135M before and after fine-tuning against gender bias",
        models={
            "base": HFBackend(path, dtype="float32"),
            "fine-tuned": HFBackend(path, dtype="float32", adapter=adapter),
        },
        suites=[
            GenderPair(pairs=held_out_pairs(), sampling={"max_tokens": 24}, toxicity=None, regard=None),
            OccuGender(["implicit"]),
            GeneralAbility(questions=questions),
        ],
        limit=limit,
        db=out / "audit.db",
        out=out,
    )


def reduce(given: argparse.Namespace) -> StoredResult:
    """Fine-tune, audit, write the report, and print what the adapter changed."""
    adapter = given.out / "adapter"
    fine_tune(lessons(given.data, given.seed), adapter, steps=given.steps, batch=given.batch, seed=given.seed)
    result = audit_of(adapter, given.out, given.limit, given.questions).run_sync()
    result.write()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the published debiasing set")
    parser.add_argument("--questions", type=Path, help="JSON lines of question, choices, answer")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--limit", type=int, default=200, help="items of each suite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("audit-out/reduction"))
    given = parser.parse_args()
    result = reduce(given)
    for m in result.measures:
        if m.spec.primary:
            print(f"{m.suite} {m.measure} {dict(m.where)} {m.model}: {m.value} [{m.low}, {m.high}]")
    print(f"{given.out}/report.html")


if __name__ == "__main__":
    main()
