"""The parts of the published schemas that follow from the table of metrics. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.metric import Metric
from ..core.metrics import ANALYSIS, METRICS
from ..core.verdict import CASE_VERDICTS
from .baseline import CASE, TARGET, is_required

__all__ = ["filled"]

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_FIRST = min(metric.since for metric in METRICS)
_SAID = {
    "kernel": "Digest of the canonical PTX: no comments, names, .loc.",
    "inputs": "Digest of launch shapes, scalars and first contents of arrays.",
}
_OF_PLUGIN = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
_PLUGINS = {
    "description": "The plugins that bring metrics or patterns; absent without any.",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": _TEXT,
            "metrics": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": _TEXT,
                        "kind": {"enum": ["exact", "ratio", "modelled"]},
                        "better": {"enum": ["lower", "higher", "neutral"]},
                        "unit": _TEXT,
                        "per_target": {"type": "boolean"},
                        "digits": _COUNT,
                        "tolerance": _TEXT,
                        "lines": {"type": "array", "items": _TEXT},
                    },
                    "required": [
                        "name",
                        "kind",
                        "better",
                        "unit",
                        "per_target",
                        "digits",
                        "tolerance",
                        "lines",
                    ],
                },
            },
        },
        "required": ["name", "metrics"],
    },
}
_REVISIONS = {
    "type": "object",
    "properties": {name: _COUNT for name in ANALYSIS},
    "description": "Revisions under which this was measured; in a baseline, where they are not those of its file.",
}


def filled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of baselines or of reports, with what a stored case holds, and the verdicts of metrics, put in anew."""
    parts = dict(schema["$defs"])
    made = {**schema, "$defs": parts}
    if "entry" in parts:
        parts["entry"] = _object(CASE)
        parts["case"]["properties"]["analysis"] = _REVISIONS
        made["properties"]["plugins"] = _PLUGINS
        parts["row"]["properties"]["verdict"]["enum"] = list(CASE_VERDICTS)
        parts["row"]["properties"]["source"] = {
            "description": "Where the registers come from that the metric is, or follows from.",
            "enum": ["estimated", "ptxas"],
        }
    else:
        parts["case"] = _object(CASE)
        made["properties"]["analysis"] = {
            "type": "object",
            "properties": _REVISIONS["properties"],
            "required": [name for name in ANALYSIS if name != "metrics"],
        }
    return made


def _object(shape: Mapping[str, Any]) -> dict[str, Any]:
    # Open for what other versions know; required is what all have.
    return {
        "type": "object",
        "properties": {name: _property(name, kind) for name, kind in shape.items()},
        "required": [name for name, kind in shape.items() if is_required(name, kind, _FIRST)],
    }


def _property(name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        return _object(kind)
    if isinstance(kind, Metric):
        number = {"type": "number", "minimum": 0} if kind.digits else _COUNT
        return {**number, **({"maximum": 100} if kind.unit == "%" else {})}
    made: Mapping[str, Mapping[str, Any]] = {
        "revisions": _REVISIONS,
        "text": {**_TEXT, **({"description": _SAID[name]} if name in _SAID else {})},
        "count": _COUNT,
        "counts": {"type": "object", "additionalProperties": _COUNT},
        "texts": {"type": "array", "items": _TEXT},
        "plugins": {
            "type": "object",
            "additionalProperties": _OF_PLUGIN,
            "description": "Metrics of plugins.",
        },
        "targets": {
            "type": "object",
            "additionalProperties": _object(TARGET) if kind == "targets" else True,
        },
    }
    return dict(made[kind])
