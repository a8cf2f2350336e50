"""``gpuperf ls``: the PTX, machine code and kernels in a program or library."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gpuperf_engine.binaries import Image

from ..core.escaping import clean
from ..core.mangling import function_name
from ..core.numbers import counted
from ..sources.binary import begins_as_binary, images_of
from ..sources.files import NoSource
from .common import OK, Subcommands, UsageError, columns, parse_file, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser("ls", help="list the PTX in programs and libraries, and its kernels")
    parser.add_argument(
        "file", metavar="FILE", nargs="+", help="program, library, object, cubin, fat binary or PTX"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    documents = [_describe(path) for path in arguments.file]
    if arguments.format == "json":
        write(json.dumps(documents, indent=1, ensure_ascii=False) + "\n", arguments.output)
    else:
        lines = [line for document in documents for line in [*_table(document), ""]]
        write("\n".join(lines), arguments.output)
    return OK


def _describe(path: str) -> dict[str, object]:
    try:
        if begins_as_binary(Path(path)):
            return {"path": path, "images": [_image(image) for image in images_of(Path(path), path)]}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except NoSource as error:
        raise UsageError(str(error)) from None
    module = parse_file(path)
    size = len(module.text.encode())
    return {
        "path": path,
        "images": [_row("PTX", module.target, "", size, list(module.kernels))],
    }


def _image(image: Image) -> dict[str, object]:
    if image.kind != "PTX":
        return _row(image.kind, image.target, image.compression, image.size, [])
    return _row("PTX", image.named_target, image.compression, image.size, list(image.kernels))


def _row(kind: str, target: str, compression: str, size: int, kernels: list[str]) -> dict[str, object]:
    return {"kind": kind, "target": target, "compression": compression, "bytes": size, "kernels": kernels}


def _table(document: dict[str, object]) -> list[str]:
    images = document["images"]
    assert isinstance(images, list)
    rows = [("kind", "target", "bytes", "compressed by", "kernels")]
    rows += [
        (
            image["kind"],
            image["target"],
            f"{image['bytes']:,}",
            image["compression"] or "-",
            ", ".join(_names(image["kernels"])) or "-",
        )
        for image in images
    ]
    ptx_images = counted(sum(image["kind"] == "PTX" for image in images), "PTX image")
    return [clean(line) for line in [f"{document['path']}: {ptx_images}", *columns(rows, right=(2,))]]


def _names(kernels: list[str]) -> list[str]:
    """Return the functions' own names if they are unique, else the mangled ones."""
    short = [function_name(kernel) for kernel in kernels]
    return [own if short.count(own) == 1 else kernel for own, kernel in zip(short, kernels)]
