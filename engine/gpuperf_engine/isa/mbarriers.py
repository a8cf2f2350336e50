"""The 64 bits of an mbarrier object, which the manual does not specify, and the operations on them (manual: "Parallel
Synchronization and Communication Instructions: mbarrier").

========= ==================================================================================
bits      field
========= ==================================================================================
0 … 19    pending arrivals of the current phase
20 … 39   expected arrivals of the phases to come
40 … 60   tx-count of the current phase plus 2^20
61        parity of the current phase
62, 63    binary 10 in an object that is initialised, 11 in one of ``.layout::v1``
========= ==================================================================================

Counts of ``.layout::v1`` have nine bits. Three of the bits that this leaves free describe reports:

========= ==================================================================================
29        whether the current phase has a report
30        whether the last phase had a report
31        parity of the conditional phase, which ends with a phase without a report
========= ==================================================================================

The reported value (``reportValue``) is always 0 here. An opaque state is a copy of the object before the arrive operation.
"""

from __future__ import annotations

__all__ = [
    "COUNT_MAX",
    "SMALL_MAX",
    "Mbarrier",
    "arrive",
    "change_transactions",
    "ended",
    "explain",
    "fresh",
    "is_ended",
    "is_valid",
    "max_arrivals",
    "parity",
    "pending",
    "report",
    "revived",
    "waits_for",
    "was_reported",
]

#: the highest count of arrivals, and the largest absolute value of the tx-count
COUNT_MAX = (1 << 20) - 1
#: the highest count of arrivals of ``.layout::v1``
SMALL_MAX = (1 << 9) - 1
_BIAS = 1 << 20


class Mbarrier:
    """Bit positions of the object's fields, numbers of operations and their flags, and of errors."""

    EXPECTED = 20
    TRANSACTIONS = 40
    PARITY = 61
    TAG = 62
    #: of an object that was invalidated, which keeps its other bits, unless bytes are pending
    ENDED = 1
    VALID = 2
    REPORTING = 3
    #: fields of ``.layout::v1``
    REPORT = 29
    REPORTED = 30
    CONDITIONAL = 31
    #: bits that are 0 in ``.layout::v1``
    UNUSED = 0xFF000FFE00
    # operations, and flags that are or-ed to them
    INIT = 0
    INVAL = 1
    EXPECT = 2
    COMPLETE = 3
    ARRIVE = 4
    CHECK = 5
    LAYOUT = 6
    DROP = 16
    EXPECTS = 32
    STAYS = 64
    REPORTS = 128  # .layout::v1
    # errors
    NOT_SHARED = 8
    UNINITIALISED = 9
    COUNT = 10
    TOO_MANY = 11
    RANGE = 12
    COMPLETES = 13
    STATE = 14
    # errors of bulk copies
    SIZE = 15
    WORDS = 16
    EDGE = 17
    NO_REPORT = 18
    INVALID = 19  # to ``inval``; an error only if violations of rules are
    UNSEEN = 20  # to ``init``, likewise
    USED = 21  # after ``inval``, likewise


def fresh(count: int, reports: bool = False) -> int:
    """A new object in phase 0 that expects ``count`` arrivals; ``reports``: of ``.layout::v1``."""
    tag = Mbarrier.REPORTING if reports else Mbarrier.VALID
    return tag << Mbarrier.TAG | _BIAS << Mbarrier.TRANSACTIONS | count << Mbarrier.EXPECTED | count


def is_valid(word: int) -> bool:
    """Whether the bits are those of an initialised object."""
    return word >> Mbarrier.TAG == Mbarrier.VALID or (_reports(word) and word & Mbarrier.UNUSED == 0)


def ended(word: int) -> int:
    """An object after ``mbarrier.inval``; nothing is left of one of ``.layout::v1``, or with pending bytes."""
    return 0 if _reports(word) or pending(word)[1] else word - (1 << Mbarrier.TAG)


def revived(word: int) -> int:
    """The object that was invalidated."""
    return word + (1 << Mbarrier.TAG)


def is_ended(word: int) -> bool:
    """Whether the bits are those of an object that was invalidated."""
    arrivals, transactions = pending(word)
    expected = word >> Mbarrier.EXPECTED & COUNT_MAX
    return word >> Mbarrier.TAG == Mbarrier.ENDED and not transactions and arrivals <= expected


def _reports(word: int) -> bool:
    return word >> Mbarrier.TAG == Mbarrier.REPORTING


def max_arrivals(word: int) -> int:
    """The highest count of arrivals of an object's layout."""
    return SMALL_MAX if _reports(word) else COUNT_MAX


def report(word: int) -> tuple[int, int]:
    """A report in the current phase: the new object, and the error or 0."""
    return (word | 1 << Mbarrier.REPORT, 0) if _reports(word) else (word, Mbarrier.NO_REPORT)


def was_reported(word: int) -> bool:
    """Whether the last phase had a report."""
    return _reports(word) and bool(word >> Mbarrier.REPORTED & 1)


def parity(word: int) -> int:
    """Parity of the current phase."""
    return word >> Mbarrier.PARITY & 1


def pending(word: int) -> tuple[int, int]:
    """Arrivals and transactions that the current phase waits for."""
    return word & COUNT_MAX, (word >> Mbarrier.TRANSACTIONS & 2 * _BIAS - 1) - _BIAS


def _settled(word: int, arrivals: int, expected: int, transactions: int) -> tuple[int, bool]:
    """The object with these counts, in its next phase if nothing is pending, and whether the phase completed."""
    phase = parity(word)
    complete = arrivals == 0 and transactions == 0 and pending(word) != (0, 0)
    settled = word >> Mbarrier.TAG << Mbarrier.TAG
    if _reports(word):
        reported, conditional = word & 1 << Mbarrier.REPORT, word & 1 << Mbarrier.CONDITIONAL
        if complete:
            settled |= reported << 1 | conditional ^ (not reported) << Mbarrier.CONDITIONAL
        else:
            settled |= word & 7 << Mbarrier.REPORT
    if complete:
        phase, arrivals = phase ^ 1, expected
    settled |= phase << Mbarrier.PARITY | (transactions + _BIAS) << Mbarrier.TRANSACTIONS
    return settled | expected << Mbarrier.EXPECTED | arrivals, complete


def change_transactions(word: int, amount: int) -> tuple[int, bool, int]:
    """``expect_tx``, or ``complete_tx`` if negative: the new object, whether a phase completed, and the error or 0."""
    arrivals, transactions = pending(word)
    transactions += amount
    if not -COUNT_MAX <= transactions <= COUNT_MAX:
        return word, False, Mbarrier.RANGE
    return *_settled(word, arrivals, word >> Mbarrier.EXPECTED & max_arrivals(word), transactions), 0


def arrive(word: int, count: int, flags: int, transactions: int = 0) -> tuple[int, bool, int]:
    """``count`` arrivals, after an ``expect_tx`` of ``transactions``; results as of ``change_transactions``. ``flags``: those of
    ``Mbarrier``."""
    arrivals, waiting = pending(word)
    expected = word >> Mbarrier.EXPECTED & max_arrivals(word)
    waiting += transactions
    if not 1 <= count <= max_arrivals(word):
        return word, False, Mbarrier.COUNT
    if waiting > COUNT_MAX:
        return word, False, Mbarrier.RANGE
    if count > arrivals or (flags & Mbarrier.DROP and count > expected):
        return word, False, Mbarrier.TOO_MANY
    arrivals -= count
    if flags & Mbarrier.DROP:
        expected -= count
    if flags & Mbarrier.STAYS and arrivals == 0 and waiting == 0:
        return word, False, Mbarrier.COMPLETES
    return *_settled(word, arrivals, expected, waiting), 0


def waits_for(word: int, state: int, of_parity: bool, conditional: bool = False) -> bool:
    """Whether the phase of an opaque state, or of a parity, is not complete yet; ``conditional``: the conditional phase."""
    if conditional and _reports(word):
        return word >> Mbarrier.CONDITIONAL & 1 == state & 1
    return parity(word) == (state & 1 if of_parity else parity(state))


def explain(problem: int, word: int, amount: int) -> tuple[str, str]:
    """The message and the hint of an error."""
    arrivals, transactions = pending(word)
    if problem == Mbarrier.NOT_SHARED:
        return (
            "the address is not in shared memory",
            "mbarrier objects, and memory that is filled, are in the shared memory of the block",
        )
    if problem == Mbarrier.UNINITIALISED:
        return (
            "there is no mbarrier object",
            "call mbarrier.init first, followed by a barrier of the block; after mbarrier.inval it needs another init",
        )
    if problem == Mbarrier.INVALID:
        return (
            "there is no mbarrier object [invalid-again]",
            "invalidate an object once, after its last use; GPUs do nothing if it is not valid",
        )
    if problem == Mbarrier.UNSEEN:
        return (
            "threads that wait for a phase of the object have not seen its end [unseen-phase]",
            "let the threads of the block meet at a barrier before an object is initialised again",
        )
    if problem == Mbarrier.USED:
        return (
            "the object was invalidated [after-inval]",
            "let the threads of the block meet at a barrier before mbarrier.inval",
        )
    if problem == Mbarrier.COUNT:
        return f"a count of {amount:,}", f"counts are 1 to {COUNT_MAX:,}, of .layout::v1 to {SMALL_MAX}"
    if problem == Mbarrier.TOO_MANY:
        return (
            f"{amount:,} arrival{'s' * (amount != 1)} at a phase that has {arrivals:,} pending",
            "the count given to mbarrier.init must be that of all arrivals of a phase",
        )
    if problem == Mbarrier.RANGE:
        return (
            f"{amount:,} bytes at a phase with a tx-count of {transactions:,}",
            f"the tx-count of a phase is {-COUNT_MAX:,} to {COUNT_MAX:,}",
        )
    if problem == Mbarrier.COMPLETES:
        return "the arrival completes the phase, which .noComplete forbids", "leave .noComplete out"
    if problem in (Mbarrier.SIZE, Mbarrier.WORDS):
        return f"{amount:,} bytes", f"the size must be a multiple of {16 if problem == Mbarrier.SIZE else 8}"
    if problem == Mbarrier.EDGE:
        return f"{amount:,} bytes to ignore at one end", "they are 0 to 15"
    if problem == Mbarrier.NO_REPORT:
        return (
            "the mbarrier object does not store reports",
            "initialise it with mbarrier.init.layout::v1 for copies that report",
        )
    return "the operand is not a state of an mbarrier object", "states come from mbarrier.arrive"
