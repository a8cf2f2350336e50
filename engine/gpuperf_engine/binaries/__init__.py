"""PTX inside binaries: fat binaries, alone and in objects, libraries and executables, and what a cubin keeps of it."""

from .images import Image, is_binary, read_images

__all__ = ["Image", "is_binary", "read_images"]
