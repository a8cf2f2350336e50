"""The last store to each word of global memory, for the detection of dead stores (``simt.dead_stores``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pages import reserve

__all__ = ["StoreShadow"]


class StoreShadow:
    """Entries of 8 bytes for words of 4 bytes, for single bytes of words with separate entries, and for units of 256 bytes in which a
    stored object begins. Pages are committed on first use, so a launch takes twice the memory that it writes.

    Entries contain the ``epoch`` of their launch, so that those of earlier launches need not be cleared. ``SPREAD`` of a word's entry
    is how the stores of threads cover its bytes; the thread is that of the first byte.
    """

    #: bits of an entry: slot + 1 of the store, number of the thread in the launch, how it spread over a word, and epoch
    THREAD = 16
    SPREAD = 57
    EPOCH = 59
    #: the last epoch, after which the shadow is cleared
    LAST = 31
    #: values of SPREAD: one thread stored the word; consecutive threads stored its bytes, or its halves; bytes have separate entries
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
