"""Who stored to each word of global memory last, kept beside it while dead stores are looked for (``simt.dead_stores``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pages import reserve

__all__ = ["StoreShadow"]


class StoreShadow:
    """Entries of 8 bytes for words of 4 bytes, for single bytes of words whose bytes have entries of their own, and for units of 256
    bytes in which an object that was stored to begins. Pages that no store touches take no memory: a launch costs twice the bytes that
    it writes.

    Entries have the ``epoch`` of their launch, so that those of earlier launches need not be cleared. The entry of a word says how the
    store ``SPREAD`` over its bytes: the thread is that of the first one.
    """

    #: bits of an entry: slot + 1 of the store, number of the thread in the launch, how it spread over a word, and epoch
    THREAD = 16
    SPREAD = 57
    EPOCH = 59
    #: the last epoch, after which the shadow begins anew
    LAST = 31
    #: of SPREAD: one thread stored the whole word; each byte, or each half, is of the next thread; bytes have entries of their own
    WHOLE = 0
    BYTES = 1
    HALVES = 2
    MIXED = 3
    #: bits of the slot
    SLOT = 65535

    def __init__(self, span: int) -> None:
        self.words: NDArray[np.uint8] = reserve(2 * span)
        self.bytes: NDArray[np.uint8] = reserve(8 * span)
        self.objects: NDArray[np.uint8] = reserve(span // 32 + 8)
        self.epoch = 0
