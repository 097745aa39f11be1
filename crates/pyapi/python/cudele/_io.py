"""Files as Python knows them: raw ones, and the buffers and text around them."""

import io
import os
from typing import Any, Optional, Union

from . import _cudele
from ._paths import StrPath, encode

# Whole files are read in pieces, so that a length that grows meanwhile is no problem.
_PIECE = 8 << 20
# What is read ahead and gathered. Requests cost more here than memory.
_BUFFER = 1 << 20


def flags_of(mode: str) -> int:
    """The flags of open(2) for a mode of Python, without what says bytes or text."""
    if len(set(mode)) != len(mode) or set(mode) - set("rwxa+bt") or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    kinds = [kind for kind in mode if kind in "rwxa"]
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if kinds[0] == "r" else os.O_WRONLY
    return access | {
        "r": 0,
        "w": os.O_CREAT | os.O_TRUNC,
        "x": os.O_CREAT | os.O_EXCL,
        "a": os.O_CREAT | os.O_APPEND,
    }[kinds[0]]


class FileIO(io.RawIOBase):
    """A file that is open, without a buffer; :meth:`FileSystem.open` puts one around it.

    Others see what was written when the file is closed or synced. If closing it fails, it is still
    open and holds what was written, and can be closed again.
    """

    name: Union[str, bytes]
    mode: str

    def __init__(self, native: "_cudele.File", path: StrPath, mode: str) -> None:
        self._native = native
        self.name = os.fspath(path)
        self.mode = mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.strip("bt") != "r"
        if "a" in mode:
            native.seek(native.stat()[5])

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def _check_readable(self) -> None:
        if not self.readable():
            raise io.UnsupportedOperation("not readable")

    def _check_writable(self) -> None:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")

    def read(self, size: Optional[int] = -1) -> bytes:
        self._check_readable()
        if size is None or size < 0:
            return self.readall()
        return self._native.read(size)

    def readall(self) -> bytes:
        self._check_readable()
        left = self._native.stat()[5] - self._native.tell()
        pieces = [self._native.read(max(left, 0) + 1)]
        while pieces[-1]:
            pieces.append(self._native.read(_PIECE))
        return b"".join(pieces) if len(pieces) > 2 else pieces[0]

    def readinto(self, buffer: Any) -> int:
        self._check_readable()
        room = memoryview(buffer).cast("B")
        data = self._native.read(len(room))
        room[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        self._check_writable()
        data = data if type(data) is bytes else bytes(memoryview(data))
        self._native.write(data)
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        """Reads from a position, and leaves this file's own where it is."""
        self._check_readable()
        return self._native.pread(size, offset)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        if whence == io.SEEK_CUR:
            offset += self._native.tell()
        elif whence == io.SEEK_END:
            offset += self._native.stat()[5]
        elif whence != io.SEEK_SET:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._native.seek(offset)
        return offset

    def tell(self) -> int:
        self._check()
        return self._native.tell()

    def truncate(self, size: Optional[int] = None) -> int:
        self._check_writable()
        size = self._native.tell() if size is None else size
        if size < 0:
            raise ValueError(f"negative size {size}")
        self._native.truncate(size)
        return size

    def fsync(self) -> None:
        """Waits until what was written is as durable as the policy promises. Of a buffered file,
        flush it first: ``file.flush(); file.raw.fsync()``."""
        self._check()
        self._native.sync()

    def close(self) -> None:
        if self.closed:
            return
        if self._native is not None:
            self._native.close()
        super().close()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<cudele.FileIO name={self.name!r} mode={self.mode!r}{state}>"


def open_file(
    connection: "_cudele.Connection",
    path: StrPath,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
    permissions: int,
) -> Any:
    """What :meth:`FileSystem.open` says."""
    text = "b" not in mode
    if not text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    native = connection.open(encode(path), flags_of(mode), permissions)
    raw = FileIO(native, path, mode)
    if buffering == 0:
        return raw
    try:
        size = buffering if buffering > 1 else _BUFFER
        buffered: Any
        if raw._reads and raw._writes:
            buffered = io.BufferedRandom(raw, size)
        elif raw._writes:
            buffered = io.BufferedWriter(raw, size)
        else:
            buffered = io.BufferedReader(raw, size)
        if not text:
            return buffered
        file = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        file.mode = mode  # type: ignore[misc]
        return file
    except BaseException:
        raw.close()
        raise
