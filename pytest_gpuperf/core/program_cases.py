"""Cases of programs outside tests: the name of their module, and the commands that measure them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from .escaping import clean

__all__ = ["is_program", "module_of_program", "update_command"]

_SUFFIX = ".run"


def module_of_program(path: str) -> str:
    """Return the module name of a program: its path below the rootdir, with a suffix that no test has."""
    return path + _SUFFIX


def is_program(module: str) -> bool:
    return module.endswith(_SUFFIX)


def update_command(nodeid: str, targets: Iterable[str] = (), programs: Iterable[str] = ()) -> str:
    """Return the command that accepts the measurement of a test, or of a program for these targets; ``programs``: further options of a
    test's command."""
    module, _, test = nodeid.partition("::")
    if not is_program(module):
        return " ".join(("pytest", *programs, "--gpuperf --gpuperf-update", shlex.quote(clean(nodeid))))
    options = "".join(f" --target {target}" for target in targets)
    return f"gpuperf run --gate --update{options} -- {clean(test) or shlex.quote(clean(module.removesuffix(_SUFFIX))) + ' …'}"
