"""The prompting conditions of Kaneko et al. 2024: with or without examples, a debiasing sentence, or steps."""

from __future__ import annotations

#: In the paper's order. ``dp``: a debiasing sentence; ``cot``: chain of thought.
CONDITIONS = ("zero-shot", "few-shot", "zero-shot+dp", "few-shot+dp", "zero-shot+cot", "few-shot+cot")
