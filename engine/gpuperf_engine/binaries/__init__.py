"""PTX inside binaries: fat binaries, alone and in objects, libraries and executables, and the PTX text in cubins."""

from .images import Image, is_binary, read_images

__all__ = ["Image", "is_binary", "read_images"]
