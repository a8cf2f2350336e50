"""Reads reports, which are untrusted: checks them against the published schema first.

Covers the part of JSON Schema that our schemas use; a full validator agrees with it in the tests. The one of ``jsonschema`` takes four
times as long for a report of 7 MB: 2.8 s, here 0.7 s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gpuperf_engine.errors import EngineError

from ..core.escaping import one_line
from ..core.records import Document, Flow
from ..core.renamed import rename_keys, rename_metrics

__all__ = ["ReportError", "load_flows", "load_report", "load_schema", "problem"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class ReportError(EngineError):
    """A report that cannot be used."""


def load_schema(name: str) -> dict[str, object]:
    """A published schema, ``report-1`` or ``baseline-1``."""
    path = Path(__file__).resolve().parent.parent / "schemas" / f"{name}.json"
    schema: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return schema


def load_flows(path: str | Path) -> dict[str, Flow]:
    """The value flow graphs in a file, by test: of a report, or the one that ``gpuperf run --values -o`` wrote, whose program is
    ``program``. Raises ``ReportError``."""
    document = _read(path)
    if "cases" in document or "flow" not in document:
        cases = _report(path, document)["cases"]
        return {case["nodeid"]: case["detail"]["flow"] for case in cases if "flow" in case["detail"]}
    schema = load_schema("report-1")
    of_detail = cast(Mapping[str, Any], schema["$defs"])["detail"]["properties"]["flow"]
    fault = problem(document["flow"], of_detail, schema, "$.flow")
    if fault:
        raise ReportError(
            f"{path}: {one_line(fault)}", hint="rewrite it: gpuperf run --values objects -o FILE"
        )
    return {"program": cast(Flow, document["flow"])}


def load_report(path: str | Path) -> Document:
    """A report from a file. Raises ``ReportError`` with what is wrong and where."""
    return _report(path, _read(path))


def _read(path: str | Path) -> dict[str, Any]:
    """A JSON object of the version that is known."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ReportError(f"{path}: not UTF-8 text", hint="give a gpuperf.json") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {one_line(str(error))}", hint="give a gpuperf.json") from None
    if not isinstance(document, dict) or "schema_version" not in document:
        raise ReportError(f"{path}: no 'schema_version': this is not a report", hint="give a gpuperf.json")
    if document["schema_version"] != 1:
        raise ReportError(
            f"{path}: schema_version {one_line(str(document['schema_version']))} is not known, this version reads 1"
        )
    return document


def _report(path: str | Path, document: dict[str, Any]) -> Document:
    rename_keys(document)
    schema = load_schema("report-1")
    fault = problem(document, schema, schema)
    if fault:
        raise ReportError(
            f"{path}: {one_line(fault)}", hint="rewrite the report: pytest --gpuperf --gpuperf-report=DIR"
        )
    rename_metrics(document)
    return cast(Document, document)


def problem(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], where: str = "$") -> str:
    """The first violation of the schema in ``value``, with its path; empty if there is none."""
    if "$ref" in schema:
        return problem(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "anyOf" in schema:
        problems = [problem(value, choice, root, where) for choice in schema["anyOf"]]
        return "" if not all(problems) else problems[0]
    if "const" in schema and (value != schema["const"] or isinstance(value, bool)):
        return f"{where} must be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(schema['enum'])}"
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    if names and not any(_is(value, name) for name in names):
        return f"{where} must be of type {' or '.join(names)}"
    if _is(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} is out of range"
    if isinstance(value, list):
        return _array(value, schema, root, where)
    return _object(value, schema, root, where) if isinstance(value, dict) else ""


def _is(value: object, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _array(value: list[Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{where} has {len(value)} items"
    prefix = schema.get("prefixItems", [])
    for index, item in enumerate(value):
        shape = prefix[index] if index < len(prefix) else schema.get("items", {})
        fault = problem(item, shape, root, f"{where}[{index}]")
        if fault:
            return fault
    return ""


def _object(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            return f"{where} has no {name!r}"
    for name, item in value.items():
        if "propertyNames" in schema:
            fault = problem(name, schema["propertyNames"], root, f"{where} key {name!r}")
            if fault:
                return fault
        shape = properties.get(name, schema.get("additionalProperties", True))
        if shape is False:
            return f"{where} has the unknown key {name!r}"
        fault = problem(item, shape, root, f"{where}.{name}") if isinstance(shape, dict) else ""
        if fault:
            return fault
    return ""
