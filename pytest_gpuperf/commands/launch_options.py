"""The options that describe one launch."""

from __future__ import annotations

import argparse

__all__ = ["ARGUMENTS", "add_launch_options"]

ARGUMENTS = "arguments: s32=100, f32=2, 'f32[4,256]=arange|zeros|ones|empty|random|random:SEED|NUMBER|@FILE.npy', ptr=null"
"""What ``--arg`` takes, for the end of a help text."""


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """``--entry``, ``--grid``, ``--block``, ``--arg``, ``--shared-bytes``, ``--cluster`` and ``--cooperative``."""
    parser.add_argument("--entry", metavar="NAME", help="the kernel, if there are several")
    parser.add_argument("--grid", metavar="X[,Y[,Z]]", type=_dimensions, help="CTAs of the launch")
    parser.add_argument("--block", metavar="X[,Y[,Z]]", type=_dimensions, help="threads of a CTA")
    parser.add_argument(
        "--arg", metavar="TYPE=VALUE", action="append", default=[], help="one per parameter, in order"
    )
    parser.add_argument(
        "--shared-bytes", metavar="N", type=int, default=0, help="dynamic shared memory of a CTA"
    )
    parser.add_argument("--cluster", metavar="X[,Y[,Z]]", type=_dimensions, help="CTAs of a cluster")
    parser.add_argument("--cooperative", action="store_true", help="all CTAs are resident at once")


def _dimensions(text: str) -> tuple[int, ...]:
    try:
        parts = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not X[,Y[,Z]]") from None
    if not 1 <= len(parts) <= 3:
        raise argparse.ArgumentTypeError(f"{text!r} has {len(parts)} dimensions, a launch has one to three")
    return parts
