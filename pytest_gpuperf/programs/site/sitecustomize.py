"""Run where Python starts, in processes that ``programs.processes`` is for: switches on what it names, then does what it hides."""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_here = os.path.dirname(os.path.abspath(__file__))
_folders = [
    folder for folder in os.environ.get("GPUPERF_PROGRAMS_TARGET_FILES", "").split(os.pathsep) if folder
]
for _kind in os.environ.get("GPUPERF_PROGRAMS", "").split():
    try:
        _activation = import_module(f"pytest_gpuperf.{_kind}.activation")
    except ModuleNotFoundError as _error:
        if find_spec(_kind) is not None:
            _what = (
                f"gpuperf: {sys.executable} has no {_error.name}, so {_kind.capitalize()} finds no GPU there"
            )
            sys.stderr.write(f"{_what}: run the program with a Python that has 'pytest-gpuperf[{_kind}]'\n")
    else:
        _activation.switch_on(os.environ["GPUPERF_PROGRAMS_MACHINE"], _folders)

_others = [place for place in sys.path if os.path.abspath(place or ".") != _here]
_hidden = PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
