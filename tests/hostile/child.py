"""Runs jobs for ``sandbox``: reads pickled jobs from stdin, writes pickled outcomes to stdout. Its argument is the quantum."""

from __future__ import annotations

import pickle
import resource
import sys
import traceback
import warnings
from typing import BinaryIO

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.simt import schedule
from tests.hostile.sandbox import Job, Outcome

#: address space in bytes: a test that asks for more than its share fails here and not on the machine
LIMIT = 8 << 30


def perform(job: Job) -> Outcome:
    """Parse and launch; anything but an error raised on purpose is reported with its traceback."""
    arrays = []
    try:
        module = ge.parse(job.text, path=job.path)
        if job.entry is None:
            for name in module:
                module[name]
            return Outcome("ok")
        kernel = module[job.entry]
        device = ge.Device(backend=job.backend, memory_bytes=job.memory_bytes)
        arguments = []
        for argument in job.args:
            if isinstance(argument, np.ndarray):
                arrays.append(device.array(argument, name=f"array{len(arrays)}"))
                argument = arrays[-1]
            arguments.append(argument)
        profile = device.launch(kernel, job.grid, job.block, arguments, **job.options)
    except ge.EngineError as error:
        return Outcome("error", type(error).__name__, str(error), [array.numpy() for array in arrays])
    except BaseException:
        return Outcome("crash", text=traceback.format_exc())
    return Outcome("ok", outputs=[array.numpy() for array in arrays], profile=profile.to_dict())


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    while True:
        try:
            job = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(perform(job), answers)
        answers.flush()


if __name__ == "__main__":
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    schedule.QUANTUM = int(sys.argv[1])
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    serve(sys.stdin.buffer, answers)
