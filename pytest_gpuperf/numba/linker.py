"""Numba's linker, to PTX instead of machine code. Imports Numba."""

from __future__ import annotations

import numba_cuda
from cuda.core import Linker, ObjectCode
from numba.cuda.cudadrv import driver as numba_driver

from gpuperf_engine.binaries import read_images

from .link import limited, link

__all__ = ["EngineLinker", "compiler", "texts_of"]


def compiler() -> str:
    """Return the name of the compiler, with its version."""
    return f"numba-cuda {numba_cuda.__version__}"


def texts_of(image: ObjectCode) -> list[str]:
    """Return the PTX texts of an object."""
    code = image.code
    if isinstance(code, str):  # a path
        with open(code, "rb") as stream:
            code = stream.read()
    raw = bytes(code)
    if image.code_type == "ptx":
        return [raw.decode()]
    name = getattr(image, "name", "") or image.code_type
    if "cudadevrt" in name:  # link() adds the function that Numba uses of it
        return []
    images = read_images(raw, name)
    found = [one.text for one in images if one.kind == "PTX"]
    if not found:
        raise numba_driver.LinkerError(
            f"gpuperf: {name} has no PTX, only {', '.join(sorted({one.kind for one in images})) or 'host code'}: "
            "compile it with code=compute_… or link its source"
        )
    return found


class EngineLinker(numba_driver._Linker):  # type: ignore[misc]
    """Numba's linker, to PTX: nvJitLink links code with link-time optimisation (LTO), ``link`` the rest."""

    def complete(self) -> ObjectCode:
        lto = [code for code in self._object_codes if code.code_type == "ltoir"]
        texts = [text for code in self._object_codes if code.code_type != "ltoir" for text in texts_of(code)]
        self._info_log = self._error_log = ""
        if lto:
            linker = Linker(*lto, options=self._get_linker_options(ptx=True))
            texts.insert(0, bytes(linker.link("ptx").code).decode())
            self._info_log, self._error_log = linker.get_info_log(), linker.get_error_log()
            linker.close()
        self.linker = self
        self._complete = True
        text = link(texts)
        if self.max_registers:
            text = limited(text, self.max_registers)
        return ObjectCode.from_ptx(text.encode())
