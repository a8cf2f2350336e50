"""Codes shared by compiled code and Python: why a warp stops, what it waits for, and where it continues."""

from __future__ import annotations

__all__ = [
    "AREA_SHIFT",
    "CONVERGE_CODE",
    "EXIT_CODE",
    "GATHER_CODE",
    "KIND",
    "NO_AREA",
    "PLACE_SHIFT",
    "REFUSED",
    "RETURN_CODE",
    "SYNC_CODE",
    "TERMINATOR",
    "WAIT_CODE",
    "BarrierResult",
    "Event",
    "Reason",
    "Status",
    "Wait",
    "YieldBits",
]

#: as reconvergence identity: the exit of function f is ``EXIT_CODE + f``
EXIT_CODE = 1 << 30
#: as block to continue at: after the ``.sync`` instruction at the start of block b is ``SYNC_CODE + b``
SYNC_CODE = 3 << 28
#: as block to continue at: after the call or barrier at the end of block b is ``RETURN_CODE + b``
RETURN_CODE = 1 << 29
#: as block to continue at: the barrier at the end of block b, its operands already recorded, is ``GATHER_CODE + b``
GATHER_CODE = 1 << 28
#: as block to continue at: the wait on an mbarrier at the start of block b, already counted, is ``WAIT_CODE + b``
WAIT_CODE = 1 << 27
#: as block to continue at: the exchange at the start of block b, for the lanes of a diverged warp, is ``CONVERGE_CODE + b``
CONVERGE_CODE = 1 << 26
#: from this bit on, the kind of a stack entry holds the number of its area; of a path that waits its ``Reason``; of a call that saves
#: no registers ``NO_AREA`` + the number of the function
AREA_SHIFT = 8
KIND = (1 << AREA_SHIFT) - 1
#: as reconvergence identity: the exit of the function whose call holds area n is ``EXIT_CODE + NO_AREA + n``
NO_AREA = 1 << 16
#: an instruction that is not a site: −1 − (its block << this | its position there)
PLACE_SHIFT = 20
#: instead of the lanes that wait: an error
REFUSED = 1 << 32
#: as position of an instruction in its block: the terminator
TERMINATOR = (1 << PLACE_SHIFT) - 1


class BarrierResult:
    """Bits of the result that each lane receives from a barrier at which warps may arrive diverged."""

    COUNT = (1 << 16) - 1
    ANY = 1 << 16
    ALL = 1 << 17


class YieldBits:
    """How long the lanes of a warp wait at a reconvergence point, see ``simt.stack.Yielding``."""

    YIELDS = 1
    LEFT_EARLY = 2


class Reason:
    """What a path waits for: at a CTA barrier, for the rest of the warp at an aligned one, at the barrier of the cluster, or at the
    exchange that begins its block: then ``EXCHANGE`` + the number of its ``simt.effects.convergence_key``."""

    BARRIER = 1
    ALIGNED = 2
    CLUSTER = 3
    EXCHANGE = 4


class Status:
    """The result of a warp function, and of a scheduling round of a CTA (there + 8: of the warp that needs Python)."""

    DONE = 0
    BARRIER = 1
    SLICE_OVER = 2
    FAULT = 3
    EVENT = 4
    BLOCKED = 5
    STUCK = 6  # of a cluster: none of its CTAs can continue
    SUSPENDED = 7
    GATHERS = 14
    WARPGROUP = 15
    STOPPED = 16  # the next warp runs, and this one again in the next round


class Wait:
    """State of a warp between its time slices."""

    RUNNABLE = 0
    BARRIER = 1
    DONE = 2
    SLICE_OVER = 3
    CLUSTER = 5
    SUSPENDED = 6
    WARPGROUP = 7
    GATHERS = 8
    #: all its paths wait for one another, some of them at aligned barriers
    ALIGNED = 9


class Event:
    """Why a warp needs Python: ``State.EVENT``."""

    TRAP = 1
    DIVERGENT_BARRIER = 2
    PARK = 3
    SPIN = 4
    STACK = 5
    CALL = 6
    RETURN = 7
    MEMBER_MASK = 8
    INDEX = 9
    BUDGET = 10
    BARRIER_ID = 11
    TARGET = 12
    CHOOSE = 13
    EXITED = 14
    BARRIER_COUNT = 15
    REFUSED = 16
    DIVERGED = 17
    #: a matrix instruction without all lanes of its warp
    INCOMPLETE = 18
    #: a call of a system function
    SYSTEM = 19
    #: invalid operands
    MEANINGLESS = 20
    #: a product of a warpgroup that has fewer than four warps
    NO_WARPGROUP = 40
    #: descriptors that differ among the lanes
    DESCRIPTOR = 41
    #: a line of a matrix that is longer than the pattern of swizzling
    PATTERN = 42
    #: a warp that ended with more or fewer products than another of its warpgroup
    UNEVEN = 43
    #: ``alloca`` beyond the stack, or ``stackrestore`` of a wrong value
    ALLOCA = 21
    #: a second arrival at the barrier of the cluster, or a wait without an arrival
    CLUSTER_ORDER = 22
    #: a handle of no image of the required kind, or coordinates outside a surface
    IMAGE = 23
    #: too many nested calls, and local memory exhausted
    DEPTH = 50
    LOCALS = 51
    #: lanes arrive at a barrier in code for diverged warps
    ARRIVES = 52
    #: an exchange has run for the lanes of a diverged warp
    CONVERGED = 53
    #: all lanes of a ``.sync`` operation have arrived, at several instructions; ``DETAIL``: index of one of their stack entries;
    #: ``CULPRITS``: their member mask
    CONVERGE = 54
    #: no path of the warp can continue
    BLOCKED = 55
    #: lanes would arrive at aligned barriers without the rest of the warp, an error; ``CULPRITS``: those lanes
    ARRIVES_DIVERGED = 56
