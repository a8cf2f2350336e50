"""Value patterns that a program has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One value pattern. Its identity is (rule, object, call, kernel); ``evidence`` is outside the identity.

    ``rule`` is e.g. ``redundant-values``; ``object`` the name of the allocation; ``call`` the source line's text with an
    ordinal among equals; ``path``/``line`` where that call stands; ``kernel`` the kernel if the call is a launch.
    ``severity`` is ``fail`` or ``note``; ``waste`` the bytes of traffic that need not be, in all ``calls`` that it was found in;
    ``advice`` what to do.
    """

    rule: str
    object: str
    call: str
    message: str
    severity: str = "fail"
    path: str = ""
    line: int = 0
    kernel: str = ""
    waste: int = 0
    calls: int = 1
    advice: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """One line that no other finding of the program has: ``redundant-values out "launch(kernel, out)" of saxpy``."""
        return f"{self.of_case} of {self.kernel}" if self.kernel else self.of_case

    @property
    def of_case(self) -> str:
        """The same among the findings of one kernel, as its baseline holds it: ``redundant-values out "launch(kernel, out)"``."""
        return f'{self.rule} {self.object} "{self.call}"'
