"""The published schemas, from the types of ``core.records`` and the table of metrics."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from ..core import records
from ..core.metric import Metric
from ..core.metrics import ANALYSIS, METRICS
from .baseline import CASE, SCHEMA, TARGET, is_required

__all__ = ["SCHEMAS", "schema_of"]

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_FIRST = min(metric.since for metric in METRICS)
_SAID = {
    "kernel": "Digest of the canonical PTX: no comments, names, .loc.",
    "inputs": "Digest of launch shapes, scalars and initial contents of arrays.",
    "values": "For a program's kernel the scope of observed values, objects or accesses; absent if none were observed.",
    "paced": "host if a launch waited for the host while it ran, so that counts depend on how long that took; otherwise absent.",
    "compiler": "The compiler that generated the PTX for the test, with its version; absent for existing PTX.",
}
_OF_PLUGIN = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
_REVISIONS = {
    "type": "object",
    "properties": {name: _COUNT for name in ANALYSIS},
    "description": "Revisions under which this was measured; in a baseline, only if they differ from those of its file.",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMED = (records.Row, records.Detail, records.Case)
"""Records that the schema of reports defines by name, in small letters."""

_JSON = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def _report() -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "title": f"pytest-gpuperf report, schema {SCHEMA}",
        "description": inspect.cleandoc(records.Document.__doc__ or ""),
        **_record(records.Document),
        "$defs": {
            "row": _record(records.Row),
            "entry": _case(CASE),
            "detail": _record(records.Detail),
            "case": _record(records.Case),
        },
    }


def _baseline() -> dict[str, Any]:
    revisions = {"required": [name for name in ANALYSIS if name != "metrics"]}
    return {
        "$schema": _DIALECT,
        "title": f"pytest-gpuperf baseline, schema {SCHEMA}",
        "description": "One YAML file per test module. A pure function of the results; empty mappings and lists are omitted.",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "analysis": {"type": "object", "properties": _REVISIONS["properties"], **revisions},
            "cases": {"type": "object", "additionalProperties": {"$ref": "#/$defs/case"}},
        },
        "additionalProperties": False,
        "required": ["schema", "analysis", "cases"],
        "$defs": {"case": _case(CASE)},
    }


SCHEMAS = {"baseline-1": _baseline, "report-1": _report}
"""Generators of the published schemas."""


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a type of ``core.records``."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = schema_of(arguments[0])
        for more in hint.__metadata__:
            schema |= more
        if "revisions" in schema:
            return dict(_REVISIONS)
        return {
            key: value
            for key, value in schema.items()
            if key != "type" or not schema.keys() & {"const", "enum"}
        }
    if hint is records.Entry:
        return {"$ref": "#/$defs/entry"}
    if is_typeddict(hint):
        return {"$ref": f"#/$defs/{hint.__name__.lower()}"} if hint in _NAMED else _record(hint)
    if origin in (Union, UnionType):
        choices = [schema_of(choice) for choice in arguments]
        if all(choice.keys() == {"type"} for choice in choices):
            return {"type": [choice["type"] for choice in choices]}
        return {"anyOf": choices}
    if origin is list:
        items = {"items": schema_of(arguments[0])} if arguments[0] is not Any else {}
        return {"type": "array", **items}
    if origin is dict:
        names = {"propertyNames": schema_of(arguments[0])} if arguments[0] is not str else {}
        values = {"additionalProperties": schema_of(arguments[1])} if arguments[1] is not object else {}
        return {"type": "object", **names, **values}
    return {"type": _JSON[hint]}


def _record(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    names = sorted(hints, key=lambda name: name in record.__optional_keys__)
    return {
        "type": "object",
        "properties": {name: schema_of(hints[name]) for name in names},
        "additionalProperties": False,
        "required": [name for name in names if name in record.__required_keys__],
    }


def _case(shape: Mapping[str, Any]) -> dict[str, Any]:
    # allow keys of other versions; require those that all versions have
    return {
        "type": "object",
        "properties": {name: _property(name, kind) for name, kind in shape.items()},
        "required": [name for name, kind in shape.items() if is_required(name, kind, _FIRST)],
    }


def _property(name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        return _case(kind)
    if isinstance(kind, Metric):
        number = {"type": "number", "minimum": 0} if kind.digits else _COUNT
        return {**number, **({"maximum": 100} if kind.unit == "%" else {})}
    shapes: Mapping[str, Mapping[str, Any]] = {
        "revisions": _REVISIONS,
        "text": {**_TEXT, **({"description": _SAID[name]} if name in _SAID else {})},
        "text or none": _TEXT,
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
            "additionalProperties": _case(TARGET) if kind == "targets" else True,
        },
    }
    return dict(shapes[kind])
