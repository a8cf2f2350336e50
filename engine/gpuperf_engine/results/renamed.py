"""Attributes under their former names."""

from __future__ import annotations

from ..errors import warn_renamed

__all__ = ["renamed"]


def renamed(former: str, present: str) -> property:
    """The attribute under the name that it had before: a ``DeprecationWarning`` says the present one."""

    def read(self: object) -> object:
        warn_renamed(former, present)
        return getattr(self, present)

    return property(read, doc=f"``{present}``, as it was called before.")
