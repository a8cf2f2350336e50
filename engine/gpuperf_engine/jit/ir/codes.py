"""Numbers that compiled code and Python give one another: why a warp stops, what it waits for, and where it goes on."""

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
#: as place to continue: in block b behind the ``.sync`` instruction that begins it is ``SYNC_CODE + b``
SYNC_CODE = 3 << 28
#: as place to continue: in block b behind the call or barrier that ends it is ``RETURN_CODE + b``
RETURN_CODE = 1 << 29
#: as place to continue: at the barrier that ends block b, whose operands have been noted, is ``GATHER_CODE + b``
GATHER_CODE = 1 << 28
#: as place to continue: at the wait on an mbarrier that begins block b, which has been counted, is ``WAIT_CODE + b``
WAIT_CODE = 1 << 27
#: as place to continue: at the exchange that begins block b, for the lanes of a diverged warp, is ``CONVERGE_CODE + b``
CONVERGE_CODE = 1 << 26
#: from this bit on, the kind of an entry of the stack has the number of its area; of a path that waits, its ``Reason``; of a call
#: that keeps nothing, ``NO_AREA`` + the number of the function
AREA_SHIFT = 8
KIND = (1 << AREA_SHIFT) - 1
#: as reconvergence identity: the exit of the function whose call keeps area n is ``EXIT_CODE + NO_AREA + n``
NO_AREA = 1 << 16
#: an instruction that is not a site: −1 − (its block << this | its place there)
PLACE_SHIFT = 20
#: instead of the lanes that wait: an error
REFUSED = 1 << 32
#: as place of an instruction in its block: the last one, which ends it
TERMINATOR = (1 << PLACE_SHIFT) - 1


class BarrierResult:
    """Bits of what a barrier at which warps may be diverged leaves to each lane."""

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
    """What a warp function returns, and what a visit of a CTA returns (there + 8: of the warp that needs Python)."""

    DONE = 0
    BARRIER = 1
    SLICE_OVER = 2
    FAULT = 3
    EVENT = 4
    BLOCKED = 5
    STUCK = 6  # of a cluster: none of its CTAs can go on
    SUSPENDED = 7
    GATHERS = 14
    WARPGROUP = 15
    STOPPED = 16  # the next warp runs, and this one when its turn comes again


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
    #: a call of a function of the system
    SYSTEM = 19
    #: operands that mean nothing
    MEANINGLESS = 20
    #: a product of a warpgroup that has fewer than four warps
    NO_WARPGROUP = 40
    #: descriptors that differ among the lanes
    DESCRIPTOR = 41
    #: a line of a matrix that is longer than the pattern of swizzling
    PATTERN = 42
    #: a warp that ended with more or fewer products than another of its warpgroup
    UNEVEN = 43
    #: ``alloca`` without room, or ``stackrestore`` of a wrong value
    ALLOCA = 21
    #: arrives at the barrier of the cluster twice, or waits without having arrived
    CLUSTER_ORDER = 22
    #: a handle that leads to no image of the kind wanted, or coordinates outside a surface
    IMAGE = 23
    #: too many nested calls, and no more room for local variables
    DEPTH = 50
    LOCALS = 51
    #: lanes arrive at a barrier in code for warps that are diverged there
    ARRIVES = 52
    #: an exchange has been carried out for the lanes of a diverged warp
    CONVERGED = 53
    #: all lanes of a ``.sync`` operation are there, at several instructions; ``DETAIL``: the number of one of their entries on the
    #: stack; ``CULPRITS``: their member mask
    CONVERGE = 54
    #: no path of the warp can go on
    BLOCKED = 55
    #: lanes at aligned barriers are to arrive without the rest of the warp, which is an error; ``CULPRITS``: those lanes
    ARRIVES_DIVERGED = 56
