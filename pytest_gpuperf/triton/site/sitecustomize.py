"""Run where Python starts, in programs of ``gpuperf run --triton``: switches the driver on, then does what it hides."""

import importlib
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_machine = os.environ.get("GPUPERF_TRITON_MACHINE")
if _machine:
    from pytest_gpuperf.triton.activation import switch_on

    _folders = os.environ.get("GPUPERF_TRITON_TARGET_FILES", "")
    switch_on(_machine, [folder for folder in _folders.split(os.pathsep) if folder])

sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _here]
sys.modules.pop("sitecustomize", None)
if importlib.util.find_spec("sitecustomize") is not None:
    importlib.import_module("sitecustomize")
