"""Zstandard (RFC 8878), by which fat binaries are compressed from CUDA 12.8 on. Python 3.14 decodes it, before that a package."""

from __future__ import annotations

from ..errors import BinaryError

__all__ = ["decompress"]


def decompress(frame: bytes, size: int, where: str) -> bytes:
    """The bytes of a frame, at most ``size``. Raises ``ValueError`` for a frame that is none, and ``BinaryError`` where nothing is
    installed that decodes it; ``where`` stands before the message."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return _by_package(frame, size, where)
    try:
        return bytes(zstd.ZstdDecompressor().decompress(frame, max_length=size + 1))
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None


def _by_package(frame: bytes, size: int, where: str) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise BinaryError(
            f"{where} is compressed with zstd, but no decoder is installed",
            hint="pip install zstandard, or compile with nvcc --compress-mode=none (before CUDA 12.8: --no-compress)",
        ) from None
    try:
        # A stream gives no more than is asked for, whatever the frame says of its own size.
        with zstandard.ZstdDecompressor().stream_reader(frame) as stream:
            return bytes(stream.read(size + 1))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
