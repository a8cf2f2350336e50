"""The value flow graph of a test, as reports have it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from .._engine import engine
from ..authoring.record import shown_path
from ..core.escaping import storable
from ..core.records import Flow, SiteRow

if TYPE_CHECKING:
    from gpuperf_engine import Device

__all__ = ["flow_of"]


def flow_of(device: Device, rootdir: Path) -> Flow:
    """The graph of everything that was done on the device. Paths are those below the rootdir; calls from elsewhere are left out."""
    flow = cast(Flow, engine.flow_graph(device.program).to_dict())
    for vertex in flow["vertices"]:
        vertex["label"] = storable(vertex["label"])
        sites = [_site(site, rootdir) for site in vertex["path"]]
        vertex["path"] = [site for site in sites if not Path(site["path"]).is_absolute()] or sites[:1]
        vertex["findings"] = [storable(text) for text in vertex["findings"]]
    for edge in flow["edges"]:
        edge["name"] = storable(edge["name"])
    return flow


def _site(site: SiteRow, rootdir: Path) -> SiteRow:
    return {
        "text": storable(site["text"]),
        "path": shown_path(site["path"], rootdir),
        "line": site["line"],
        "function": storable(site["function"]),
    }
