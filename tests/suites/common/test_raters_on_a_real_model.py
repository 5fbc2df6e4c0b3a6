"""The embedded models as raters: what labelled texts say of them is what plain transformers say."""

import math
import statistics

import pytest

from backends import HFBackend
from backends.embedded import gemma3_path, smollm2_path
from suites.common import raters
from suites.common.text_scorer import raters_of, text_scorer

pytestmark = [pytest.mark.models, pytest.mark.battery, pytest.mark.timeout(900)]


@pytest.mark.parametrize("path", [smollm2_path, gemma3_path])
async def test_a_real_models_ratings_equal_plain_transformers(path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = path()
    scorer = text_scorer("toxicity", HFBackend(file, dtype="float32", threads=2))
    rater = raters_of({"toxicity": scorer})["toxicity"]
    items = list(raters.labelled_items(rater))
    answers = await scorer.backend.run([item.request for item in items])
    rows = [raters.read_labelled(i, rater, answer) for i, answer in zip(items, answers, strict=True)]

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    rubric = scorer.backend.rubric

    def plain(text):
        shown = [(e.text, f" {rubric.answers[e.label]}") for e in rubric.examples]
        parts = [rubric.question.replace("{text}", t) + f"\nAnswer:{said}" for t, said in [*shown, (text, "")]]
        ids = tokenizer("\n\n".join(parts), return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1].log_softmax(-1)
        said = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in ("yes", "no")]
        assert all(len(one) == 1 for one in said)
        yes, no = (logits[one[0]].item() for one in said)
        return math.exp(yes) / (math.exp(yes) + math.exp(no))

    for item, row in list(zip(items, rows, strict=True))[::10]:
        assert row.values["toxicity"].value == pytest.approx(plain(item.request.text), abs=1e-4)

    found = raters.trust(rows, rater)["toxicity"]
    scores = {
        says: [r.values["toxicity"].low for r in rows if (r.factors["label"] == "toxic") == says] for says in (1, 0)
    }
    separation = statistics.fmean(scores[True]) - statistics.fmean(scores[False])
    assert found.separation < separation
    # A model of this size separates little, and is believed only if that is more than its swap gaps.
    assert found.is_trusted == (found.separation > found.swap_gap)
    agreement = statistics.fmean(row.values["agrees"].low for row in rows)
    print(
        f"{file.name}: agreement {agreement:.3f}, separation {separation:.3f} (at least {found.separation:.3f}), "
        f"swap gap at most {found.swap_gap:.3f}: {'believed' if found.is_trusted else 'refused'}"
    )
