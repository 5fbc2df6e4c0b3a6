"""Reads exported folders by the tools that they are for, in these tools' own Python, and prints what they found.

readers.py FOLDER   with FOLDER/inspect and FOLDER/lm-eval
"""

import json
import sys
from pathlib import Path

from inspect_ai.log import list_eval_logs, read_eval_log
from lm_eval.utils import get_sample_results_filenames, make_table


def inspect_logs(folder: Path):
    for found in list_eval_logs(str(folder)):
        log = read_eval_log(found)
        metrics = {name: m.value for score in log.results.scores for name, m in score.metrics.items()}
        scores = {sample.id: {name: s.value for name, s in sample.scores.items()} for sample in log.samples}
        yield {"model": log.eval.model, "task": log.eval.task, "metrics": metrics, "samples": scores}


def lm_eval_results(folder: Path):
    for path in sorted(folder.glob("*/*/results_*.json")):
        table = make_table(json.loads(path.read_text()))
        (samples,) = get_sample_results_filenames(
            [str(file) for file in path.parent.parent.glob(f"samples_{path.parent.name}_*.jsonl")]
        )
        rows = [json.loads(line) for line in Path(samples).read_text().splitlines()]
        yield {"table": table, "samples": len({row["doc_id"] for row in rows}), "folder": path.parent.parent.name}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    found = {
        "inspect": list(inspect_logs(root / "inspect")),
        "lm-eval": list(lm_eval_results(root / "lm-eval")),
    }
    json.dump(found, sys.stdout)
