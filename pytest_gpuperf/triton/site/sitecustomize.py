"""Run where Python starts, in programs of ``gpuperf run --triton``: switches the driver on, then does what it hides."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_here = os.path.dirname(os.path.abspath(__file__))
_machine = os.environ.get("GPUPERF_TRITON_MACHINE")
if _machine:
    try:
        from pytest_gpuperf.triton.activation import switch_on
    except ModuleNotFoundError as _error:
        if find_spec("triton") is not None:
            _what = f"gpuperf: {sys.executable} has no {_error.name}, so Triton finds no GPU there"
            sys.stderr.write(f"{_what}: run the program with a Python that has 'pytest-gpuperf[triton]'\n")
    else:
        _folders = os.environ.get("GPUPERF_TRITON_TARGET_FILES", "")
        switch_on(_machine, [folder for folder in _folders.split(os.pathsep) if folder])

_others = [place for place in sys.path if os.path.abspath(place or ".") != _here]
_hidden = PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
