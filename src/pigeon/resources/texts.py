"""Reading the text files that users write: UTF-8 with or without a mark, never more than asked for, never a pipe."""

from __future__ import annotations

from pigeon.system import files

LARGEST = 1_048_576


def read_text(path: str, at_most: int = LARGEST) -> str:
    """The whole file; raises `OSError`, also for one that is too large or not a regular file."""
    return _decoded(files.read_whole(path, at_most))


def read_beginning(path: str, at_most: int) -> tuple[str, bool]:
    """Up to so many bytes of a file, and whether there was more."""
    with open(files.open_regular(path), "rb") as file:
        data = file.read(at_most + 1)
    cut = len(data) > at_most
    text = _decoded(data[:at_most])
    return (text.rstrip("\ufffd") if cut else text), cut


def why(error: OSError, path: str) -> str:
    """One line for a warning."""
    return files.error_text(error, "read", path)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")
