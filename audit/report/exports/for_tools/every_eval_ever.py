"""Every Eval Ever's record of an evaluation (schema 0.3.0): the figures, with their intervals.

Its records of single items ask of each whether the answer was right, which a probability is not: they are not written.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from audit.report.exports.for_tools.of_model import OfModel, as_json
from audit.results import Measure

_SCHEMA = "0.3.0"
_RECORDS = uuid.UUID("5b0c5d1e-4c3f-4f7e-9a3c-6f2d7f3c1b80")  # of this project: a record's id follows from its names


def every_eval_ever_files(of: OfModel) -> Iterator[tuple[str, str]]:
    """One record, where that project's store has its place: ``data/SUITE/DEVELOPER/MODEL/ID.json``."""
    result = of.result
    seconds = f"{datetime.datetime.fromisoformat(result.finished).timestamp():.0f}"
    developer, name = of.developer_and_model
    figures = [_result(of, *figure) for figure in of.figures()]
    if not figures:
        return
    record = {
        "schema_version": _SCHEMA,
        "evaluation_id": f"{of.suite_part}/{developer}_{name}/{seconds}",
        "evaluation_timestamp": result.started,
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": result.title,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "bias-audit", "version": result.versions.get("bias-audit", "unknown")},
        "model_info": {
            "name": of.model.name,
            "id": f"{developer}/{name}",
            "developer": developer,
            "inference_engine": {"name": of.model.backend},
            "additional_details": _texts(
                {
                    "deployment_type": "unknown",
                    "model_availability": "unknown",
                    "fingerprint_id": of.model.fingerprint_id,
                    **{f"fingerprint.{key}": value for key, value in of.model.fingerprint.items()},
                }
            ),
        },
        "evaluation_results": figures,
    }
    key = f"{result.run_id} {of.model.name} {of.info.name}"
    number = uuid.UUID(bytes=uuid.uuid5(_RECORDS, key).bytes, version=4)  # the form that its paths must have
    yield f"data/{of.suite_part}/{developer}/{name}/{number}.json", as_json(record)


def _result(of: OfModel, name: str, measure: Measure, value: float) -> dict[str, Any]:
    low, high = measure.spec.value_range
    uncertainty: dict[str, Any] = {"num_samples": measure.n_items}
    if measure.low is not None and measure.high is not None:
        uncertainty["confidence_interval"] = {
            "lower": measure.low,
            "upper": measure.high,
            "confidence_level": of.result.confidence,
            "method": "clustered",
        }
    about = {
        "id": measure.id,
        "neutral": measure.neutral,
        "better": "neither: no bias is at the neutral value",
        "missing": measure.missing,
        "population": measure.spec.population or None,
        **measure.where,
    }
    return {
        "evaluation_result_id": measure.id,
        "evaluation_name": f"{of.info.name}: {name}",
        "source_data": {"dataset_name": of.info.name, "source_type": "other"},
        "metric_config": {
            "metric_id": f"bias_audit.{measure.measure}",
            "metric_name": measure.measure,
            "metric_unit": measure.unit,
            "lower_is_better": False,  # the schema must have one: `better` says that there is none
            "score_type": "continuous",
            "min_score": _end(low),
            "max_score": _end(high),
            "additional_details": _texts(about),
        },
        "score_details": {"score": value, "uncertainty": uncertainty},
    }


def _end(end: float) -> float | str:
    """An end of a range; JSON has no infinity."""
    return end if math.isfinite(end) else "Infinity" if end > 0 else "-Infinity"


def _texts(details: Mapping[str, Any]) -> dict[str, str]:
    """Details as strings, as the schema requires, without unknown ones."""
    return {key: str(value) for key, value in details.items() if value is not None}
