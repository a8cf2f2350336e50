"""The number of CTAs of a launch that fit on one SM: the rules of the CUDA occupancy calculator.

Source: ``cuda_occupancy.h`` of the CUDA runtime and the CUDA programming guide, "Compute Capabilities". Registers are allocated per
warp in units and within each sub-partition; shared memory is allocated per CTA, with a reserve of the driver, and rounded up to a
unit. The whole shared memory of the SM is assumed to be available to the launch (the driver's default carve-out policy selects the
smallest configuration that holds the most CTAs).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import LaunchError
from .machine import Machine

__all__ = ["WARP_SIZE", "Occupancy", "occupancy"]

WARP_SIZE = 32


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Residency of one launch on one SM.

    ``ratio`` is resident warps over the SM's limit, 0 to 1; ``limiter`` is ``warps``, ``registers``, ``shared``, ``ctas``
    or, where several allow equally many, the first of them in this order; ``limits`` holds the CTAs that each would allow.
    ``registers_per_cta`` and ``shared_per_cta`` are as allocated.
    """

    ctas_per_sm: int
    warps_per_sm: int
    ratio: float
    limiter: str
    limits: dict[str, int]
    registers_per_cta: int
    shared_per_cta: int


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(
    machine: Machine, *, threads_per_cta: int, registers_per_thread: int = 0, shared_bytes: int = 0
) -> Occupancy:
    """Resident CTAs of a launch of ``threads_per_cta`` threads with ``registers_per_thread`` 32-bit registers each.

    ``shared_bytes`` is static plus dynamic shared memory per CTA, as the kernel requests it.

    Raises :class:`LaunchError` if not even one CTA fits, with the resource, the requested and the available amount.
    """
    warps = -(-threads_per_cta // WARP_SIZE)
    registers_per_warp = _round_up(registers_per_thread * WARP_SIZE, machine.register_allocation_unit)
    shared = shared_bytes + machine.shared_reserved_per_cta
    shared = _round_up(shared, machine.shared_allocation_unit) if shared else 0
    _check(machine, threads_per_cta, warps, registers_per_thread, registers_per_warp, shared_bytes)

    limits = {
        "warps": min(machine.max_warps_per_sm, machine.max_threads_per_sm // WARP_SIZE) // warps,
        "registers": _register_limit(machine, registers_per_warp, warps),
        "shared": machine.shared_per_sm // shared if shared else machine.max_ctas_per_sm,
        "ctas": machine.max_ctas_per_sm,
    }
    resident = min(limits.values())
    limiter = next(name for name, limit in limits.items() if limit == resident)
    if resident < 1:
        raise LaunchError(
            f"no CTA of {threads_per_cta} threads with {registers_per_thread} registers and {shared_bytes} bytes of shared"
            f" memory fits on an SM of {machine.id}",
            details=[f"limited by {limiter}"],
        )
    return Occupancy(
        ctas_per_sm=resident,
        warps_per_sm=resident * warps,
        ratio=resident * warps / machine.max_warps_per_sm,
        limiter=limiter,
        limits=limits,
        registers_per_cta=registers_per_warp * warps,
        shared_per_cta=shared,
    )


def _register_limit(machine: Machine, registers_per_warp: int, warps: int) -> int:
    if not registers_per_warp:
        return machine.max_ctas_per_sm
    per_sub_partition = machine.registers_per_sm // machine.sub_partitions // registers_per_warp
    return per_sub_partition * machine.sub_partitions // warps


def _check(
    machine: Machine,
    threads: int,
    warps: int,
    registers_per_thread: int,
    registers_per_warp: int,
    shared_bytes: int,
) -> None:
    if not 1 <= threads <= machine.max_threads_per_cta:
        raise LaunchError(
            f"{threads} threads per CTA on {machine.id}",
            hint=f"1 to {machine.max_threads_per_cta} are possible",
        )
    if registers_per_thread > machine.max_registers_per_thread:
        raise LaunchError(
            f"{registers_per_thread} registers per thread on {machine.id}",
            hint=f"at most {machine.max_registers_per_thread} are possible",
        )
    # The hardware checks the limit with the warps rounded up to a multiple of the sub-partitions.
    assumed = registers_per_warp * _round_up(warps, machine.sub_partitions)
    if assumed > machine.registers_per_cta:
        raise LaunchError(
            f"{threads} threads with {registers_per_thread} registers each need {assumed} registers per CTA on {machine.id}:"
            " a GPU rejects such a launch (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
            hint=f"a CTA has at most {machine.registers_per_cta}: use fewer threads, or .maxnreg / -maxrregcount",
        )
    if shared_bytes > machine.shared_per_cta:
        raise LaunchError(
            f"{shared_bytes} bytes of shared memory per CTA on {machine.id}",
            hint=f"at most {machine.shared_per_cta} bytes are possible",
        )
