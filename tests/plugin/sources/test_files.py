"""Paths that lead to what is no file of PTX: an error at once, where reading would never end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuperf import cli
from pytest_gpuperf.commands.common import UsageError, parse_file
from pytest_gpuperf.sources.files import NoSource, check_regular, read_source

if not hasattr(os, "mkfifo"):
    pytest.skip("needs pipes in the file system", allow_module_level=True)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(5 << 30)


KINDS = [
    (pipe, "is a pipe", "accepted: a regular file"),
    (folder, "is a folder", "accepted: a regular file"),
    (device, "is a device", "accepted: a regular file"),
    (a_socket, "is a socket", "accepted: a regular file"),
    (sparse, "has 5,368,709,120 bytes", "accepted: a source of at most 268,435,456 bytes"),
]


@pytest.mark.parametrize(("make", "what", "accepted"), KINDS)
@pytest.mark.parametrize("name", ["k.ptx", "k.cu", "k"])
def test_what_is_no_file_of_a_kernel(
    make: Callable[[Path], None],
    what: str,
    accepted: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path(name))
    for read, error in ((parse_file, UsageError), (lambda given: read_source(Path(given)), NoSource)):
        with pytest.raises(error) as caught:
            read(name)
        assert str(caught.value).splitlines() == [f"{name!r} {what}", f"  {accepted}"]
    for command in ("inspect", "ls"):
        assert cli.main([command, name]) == 2
        assert f"{name!r} {what}" in capsys.readouterr().err


def test_a_regular_file_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text("text")
    (tmp_path / "link.ptx").symlink_to("k.ptx")
    assert read_source(tmp_path / "link.ptx") == "text"
    with pytest.raises(FileNotFoundError):
        check_regular(tmp_path / "none")


@pytest.mark.parametrize(
    ("make", "what"), [(pipe, "is a pipe"), (device, "is a device"), (sparse, "has 5,368,709,120 bytes")]
)
def test_the_fixture_says_the_same(project, make: Callable[[Path], None], what: str) -> None:
    make(project.path / "odd.ptx")
    project.write(
        "test_k.py",
        "def test_fixture(gpuperf):\n    gpuperf.kernel('odd.ptx', entry='k')\n",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    assert what in result.stdout.str()
