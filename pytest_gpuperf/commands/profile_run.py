"""Runs the launches of ``gpuperf profile``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..authoring.progress import Progress, step
from .arguments import make_argument
from .common import choose_kernel, parse_file
from .programs import ProgramSpec

if TYPE_CHECKING:
    from gpuperf_engine import Device, Profile
    from gpuperf_engine.profile.threads import Sample

__all__ = ["run_program"]


def run_program(
    program: ProgramSpec,
    device: Device,
    arguments: argparse.Namespace,
    demand: str,
    progress: Progress | None,
) -> list[tuple[Sample | None, Profile | None]]:
    """Return an estimate and a profile for each launch, ``None`` if not requested. Raises ``UsageError`` and ``EngineError``."""
    arrays = {
        name: make_argument(spec, device, where, program.folder)
        for name, (spec, where) in program.arrays.items()
    }
    machine = arguments.target[0] if arguments.target else None
    samples = []
    exact: dict[str, Any] = {"demand": demand}
    if arguments.thread:
        exact["threads_of"] = list(dict.fromkeys(cta for cta, _ in arguments.thread))
    for launch in program.launches:
        path = str(program.folder / launch.file)
        with step(progress, "reading PTX"):
            module = parse_file(path, launch.entry, machine)
        kernel = choose_kernel(module, path, launch.entry)
        options = {
            "grid": launch.grid,
            "block": launch.block,
            "args": [
                arrays[spec] if spec in arrays else make_argument(spec, device, launch.where, program.folder)
                for spec in launch.args
            ],
            "shared_bytes": launch.shared_bytes,
            "cluster": launch.cluster,
            "cooperative": launch.cooperative,
            "max_instructions": arguments.max_instructions,
        }
        sample = profile = None
        if arguments.sample is not None:
            with step(progress, f"sampling {kernel.name}"):
                sample = device.sample(kernel, ctas=arguments.sample, **options)
        if arguments.sample is None or arguments.exact:
            with step(progress, f"running {kernel.name}"):
                profile = device.launch(kernel, **options, **exact)
        samples.append((sample, profile))
    return samples
