"""Memory traffic of textures and surfaces, estimated: the layout of CUDA arrays is not published, so sectors are not counted.

Assumptions: a fetch reads one texel and a store writes one, of the largest size among the launch's images (other lanes
fetch the neighbours that a filter needs); the texture cache holds all texels that were read, so that every texel of the images
comes from L2 or DRAM at most once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..isa.effects import SURFACE, TEXTURE
from ..machines.common import common
from ..ptx.syntax import Instruction
from ..simt.program import BasicBlock, Program
from .build import LaunchRecord
from .opcodes import lanes_on

__all__ = ["NOTE", "ImageTraffic", "image_traffic"]

NOTE = "textures and surfaces: every texel is assumed to be read from memory at most once, and every stored texel to be written once"


@dataclass(frozen=True, slots=True)
class ImageTraffic:
    """Bytes read and written; the shares (0 to 1) of fetches of texels that were not read before, and of stores of texels that were
    not written before; and bytes of a texel."""

    read: int = 0
    written: int = 0
    missed: float = 0.0
    new: float = 0.0
    texel: int = 0


def image_traffic(record: LaunchRecord) -> ImageTraffic | None:
    """The traffic of one launch; ``None`` if it uses no texture and no surface."""
    fetched = stored = 0
    for block, instruction in _accesses(record.program):
        if not int(record.observation.block_lanes[block.index]):
            continue
        effect = instruction.form.effect
        lanes = lanes_on(instruction, block, record.program, record.observation)
        fetched += lanes * (effect is TEXTURE or instruction.opcode.startswith("sured"))
        stored += lanes * (effect is SURFACE)
    if not fetched and not stored:
        return None
    texel = max((texel for texel, _ in record.plan.images), default=int(common("textures.texel")))
    room = sum(size for _, size in record.plan.images) or texel * max(fetched, stored)
    read, written = min(fetched * texel, room), min(stored * texel, room)
    missed, new = (
        part / (count * texel) if count else 0.0 for part, count in ((read, fetched), (written, stored))
    )
    return ImageTraffic(read, written, missed, new, texel)


def _accesses(program: Program) -> list[tuple[BasicBlock, Instruction]]:
    """The instructions of a program that access images, with their blocks."""
    known = program.kernel.memo.get(ImageTraffic)
    if not isinstance(known, tuple) or known[0] is not program:
        found = [
            (block, instruction)
            for block in program.blocks
            for instruction in block.tally
            if instruction.form.effect in (TEXTURE, SURFACE)
        ]
        known = program.kernel.memo[ImageTraffic] = program, found
    accesses: list[tuple[BasicBlock, Instruction]] = known[1]
    return accesses
