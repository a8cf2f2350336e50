"""Differences of two cases apart from the metrics: limiters, origins, kinds of instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..core.metrics import TABLE

__all__ = ["structural_differences"]

_JUDGED = (
    r"root\['(kernel|inputs|analysis)'\]$",
    r"root\['(findings|lines|plugins)'\]",
    r"root\['targets'\]\['[^']*'\]\['plugins'\]",
    *(
        re.escape("root" + "".join(f"['{key}']" for key in metric.path)) + "$"
        for metric in TABLE.single
        if metric.kind != "set" and not metric.per_target
    ),
    *(re.escape(f"['{metric.path[-1]}']") + "$" for metric in TABLE.per_target),
)


def structural_differences(stored: Mapping[str, object], measured: Mapping[str, object]) -> list[str]:
    """Sentences such as ``targets.h100-sxm.limiter: latency → dram`` and ``counts.opcodes: ld.global.v4.f32 is new``, sorted."""
    from deepdiff import DeepDiff  # slow to import, and needed only where something differs

    tree = DeepDiff(stored, measured, view="tree", exclude_regex_paths=list(_JUDGED))
    differences = []
    for item in [*tree.get("values_changed", []), *tree.get("type_changes", [])]:
        if not isinstance(item.t2, (int, float)):
            differences.append(
                f"{'.'.join(map(str, item.path(output_format='list')))}: {item.t1} → {item.t2}"
            )
    for kind, word in (("dictionary_item_added", "is new"), ("dictionary_item_removed", "is gone")):
        for item in tree.get(kind, []):
            *path, name = item.path(output_format="list")
            differences.append(f"{'.'.join(map(str, path)) or 'case'}: {name} {word}")
    return sorted(differences)
