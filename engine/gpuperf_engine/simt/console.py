"""The output of ``printf`` in kernels (CUDA C++ Programming Guide, "Formatted Output")."""

from __future__ import annotations

from collections import deque

__all__ = ["PRINTF_BYTES", "Console"]

#: ``cudaLimitPrintfFifoSize`` unless set
PRINTF_BYTES = 1 << 20


class Console:
    """The text of one launch. As in the circular buffer of a GPU, the oldest calls are dropped if it exceeds ``limit`` bytes."""

    def __init__(self, limit: int = PRINTF_BYTES) -> None:
        self.limit = limit
        self.lost = 0  #: calls whose text was lost
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def write(self, text: bytes) -> None:
        """Add the text of one call of one thread."""
        self._pieces.append(text)
        self._size += len(text)
        while self._size > self.limit:
            self._size -= len(self._pieces.popleft())
            self.lost += 1

    def clear(self) -> None:
        """Discard all text, as the launch restarts."""
        self._pieces.clear()
        self._size = self.lost = 0

    @property
    def text(self) -> str:
        """The text, with bytes that are not UTF-8 as ``\\xNN``."""
        if not self._pieces:
            return ""
        return b"".join(self._pieces).decode("utf-8", "backslashreplace")

    @property
    def notes(self) -> tuple[str, ...]:
        """A note about lost text."""
        if not self.lost:
            return ()
        return (
            f"printf: the first {self.lost:,} calls are not shown, as the launch printed more than {self.limit:,} bytes; "
            "give the device more with printf_bytes=",
        )
