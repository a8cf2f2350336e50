"""The CUDA driver API, implemented by functions of the runtime API: both have one device and one state."""

from . import contexts, graphs, images, mapping, memory, modules, old_launches, same

__all__ = ["contexts", "graphs", "images", "mapping", "memory", "modules", "old_launches", "same"]
