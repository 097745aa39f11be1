"""Paths and names as the namespace has them: bytes, encoded as Python encodes those of the system."""

import os
from typing import Union

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Data = Union[bytes, bytearray, memoryview]


def encode(path: StrPath) -> bytes:
    """A path or name as bytes."""
    return os.fsencode(path)


def data_of(data: Data) -> bytes:
    """Content as bytes, copied only if others could change it meanwhile."""
    return data if type(data) is bytes else bytes(memoryview(data))
