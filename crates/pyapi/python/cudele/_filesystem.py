"""A connection to a cluster, and the calls that take a path."""

import os
import stat as _stat
from types import TracebackType
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Type, Union

from . import _cudele
from ._io import open_file
from ._paths import StrPath, encode
from ._subtree import Subtree

# Entries that are fetched in one call.
_ENTRIES = 2048

Times = Union[Tuple[Optional[float], Optional[float]], None]


class Space(NamedTuple):
    """How much room there is, in bytes."""

    #: In the object store.
    total: int
    #: Of that, free.
    available: int


class Status(NamedTuple):
    """What is promised of a file or directory, and what is so at this moment."""

    #: What it survives now: ``"none"``, ``"local"`` or ``"global"``.
    durable: str
    #: Whether others see it as it is here.
    visible: bool
    #: Of a directory: who has the subtree, as ``"decoupled here, 3 events pending"``.
    state: Optional[str]


def _stat_result(told: "_cudele.Stat") -> os.stat_result:
    mode, ino, nlink, uid, gid, size, atime, mtime, ctime = told
    whole = (mode, ino, 0, nlink, uid, gid, size, atime // 10**9, mtime // 10**9, ctime // 10**9)
    exact = {
        "st_atime": atime / 10**9,
        "st_mtime": mtime / 10**9,
        "st_ctime": ctime / 10**9,
        "st_atime_ns": atime,
        "st_mtime_ns": mtime,
        "st_ctime_ns": ctime,
        "st_blksize": 4096,
        "st_blocks": -(-size // 512),
    }
    return os.stat_result(whole, exact)


class DirEntry:
    """An entry of a directory, like :class:`os.DirEntry`: its attributes came with the listing."""

    __slots__ = ("_fs", "_stat", "name", "path")

    def __init__(self, fs: "FileSystem", name: str, path: str, told: "_cudele.Stat") -> None:
        self._fs = fs
        self._stat = told
        self.name = name
        self.path = path

    def inode(self) -> int:
        return self._stat[1]

    def _type(self, follow_symlinks: bool) -> int:
        if follow_symlinks and self.is_symlink():
            try:
                return _stat.S_IFMT(self._fs.stat(self.path).st_mode)
            except FileNotFoundError:
                return 0
        return _stat.S_IFMT(self._stat[0])

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._type(follow_symlinks) == _stat.S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._type(follow_symlinks) == _stat.S_IFREG

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._stat[0])

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks and self.is_symlink():
            return self._fs.stat(self.path)
        return _stat_result(self._stat)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<cudele.DirEntry {self.name!r}>"


def connect(mon: Optional[str] = None, dir: Optional[StrPath] = None) -> "FileSystem":
    """Connects to a cluster: to the monitor at the address ``mon`` (``unix:PATH``,
    ``tcp:HOST:PORT``, or ``plain:HOST:PORT`` on this machine), or to the cluster in the directory
    ``dir``. Without either, ``$CUDELE_MON``, ``$CUDELE_DIR`` and the cluster that this user started
    last are tried. Over TCP, ``$CUDELE_KEY`` names the key file, and calls have its rights; else they
    have the rights of the user of this process.

    ::

        with cudele.connect(dir="/srv/cluster") as fs:
            print(fs.listdir("/"))
    """
    return FileSystem(_cudele.connect(mon, None if dir is None else encode(dir)))


class FileSystem:
    """A connection to a cluster. Paths begin with ``/``, the root of its namespace; symbolic links on the
    way are followed. Any thread may use it; a child process connects anew.

    As a context manager it is closed at the end. No umask is taken off permissions.
    """

    def __init__(self, native: "_cudele.Connection") -> None:
        self._native = native
        self._open = True

    # --- the connection ---

    def close(self) -> None:
        """Ends the connection. What was written is told to the server first, but not made durable: see
        :meth:`sync`. Fails with ``EBUSY`` while files, listings or subtrees are open. What a decoupled
        subtree holds that was neither persisted nor merged is gone."""
        if self._open:
            self._native.close()
            self._open = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._open

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.close()
        except OSError:
            # What went wrong first is what people must see.
            if kind is None:
                raise

    def sync(self) -> None:
        """Waits until everything that was changed through this connection is as durable as the policies
        promise. Of decoupled subtrees it is :meth:`Subtree.persist` and its like that do that."""
        self._native.sync()

    def space(self) -> Space:
        """How much room the object store has."""
        return Space(*self._native.space())

    # --- attributes ---

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as :func:`os.stat` has them. Of a directory, ``st_size`` is the number of its
        entries, as far as that is known."""
        return _stat_result(self._native.stat(encode(path), follow_symlinks))

    def lstat(self, path: StrPath) -> os.stat_result:
        """As :meth:`stat`, but of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: StrPath) -> bool:
        """Whether a path leads anywhere."""
        try:
            self._native.stat(encode(path), True)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: StrPath) -> bool:
        """Whether a path leads to a directory."""
        return self._is(path, _stat.S_IFDIR)

    def isfile(self, path: StrPath) -> bool:
        """Whether a path leads to a file."""
        return self._is(path, _stat.S_IFREG)

    def _is(self, path: StrPath, kind: int) -> bool:
        try:
            return _stat.S_IFMT(self._native.stat(encode(path), True)[0]) == kind
        except (FileNotFoundError, NotADirectoryError):
            return False

    def access(self, path: StrPath, mode: int) -> bool:
        """Whether permissions allow this process what :func:`os.access` calls ``mode``."""
        try:
            self._native.access(encode(path), mode)
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            return False
        return True

    def chmod(self, path: StrPath, mode: int) -> None:
        """Changes the permissions."""
        self._native.chmod(encode(path), mode)

    def utime(
        self,
        path: StrPath,
        times: Times = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of the last access and change, in seconds or nanoseconds since 1970. A time in
        ``times`` that is ``None`` stays; without either, both are now."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        at: Tuple[Optional[int], Optional[int]]
        if ns is not None:
            at = ns
        elif times is not None:
            whole = [None if time is None else round(time * 10**9) for time in times]
            at = (whole[0], whole[1])
        else:
            import time as clock

            at = (clock.time_ns(),) * 2
        self._native.utime(encode(path), at[0], at[1], follow_symlinks)

    def truncate(self, path: StrPath, size: int) -> None:
        """Cuts a file off, or lengthens it with zeros."""
        self._native.truncate(encode(path), size)

    def getxattr(self, path: StrPath, name: StrPath) -> bytes:
        """An extended attribute. Those of Cudele begin with ``cudele.``, such as ``cudele.dir.rbytes``."""
        return self._native.get_xattr(encode(path), encode(name))

    def setxattr(self, path: StrPath, name: StrPath, value: bytes) -> None:
        """Sets an extended attribute."""
        self._native.set_xattr(encode(path), encode(name), value)

    def removexattr(self, path: StrPath, name: StrPath) -> None:
        """Removes an extended attribute."""
        self._native.set_xattr(encode(path), encode(name), None)

    def listxattr(self, path: StrPath) -> List[str]:
        """The names of the extended attributes that people have set."""
        return [os.fsdecode(name) for name in self._native.list_xattr(encode(path))]

    # --- names ---

    def listdir(self, path: StrPath = "/") -> List[str]:
        """The names in a directory, without ``.`` and ``..``, in its own order."""
        return [name for page in self._pages(encode(path)) for name, _ in page]

    def scandir(self, path: StrPath = "/") -> Iterator[DirEntry]:
        """The entries of a directory, with their attributes, fetched as they are needed. Names that are
        there all the time are seen exactly once, whatever else is made and removed meanwhile.

        ::

            sizes = {entry.name: entry.stat().st_size for entry in fs.scandir("/scratch")}
        """
        encoded = encode(path)
        above = os.fsdecode(encoded).rstrip("/")
        for page in self._pages(encoded):
            for name, told in page:
                yield DirEntry(self, name, f"{above}/{name}", told)

    def _pages(self, path: bytes) -> Iterator[List[Tuple[str, "_cudele.Stat"]]]:
        listing = self._native.open_dir(path)
        try:
            while True:
                page = listing.read(_ENTRIES)
                yield [(os.fsdecode(name), told) for name, told in page]
                if len(page) < _ENTRIES:
                    return
        finally:
            listing.close()

    def walk(self, top: StrPath = "/") -> Iterator[Tuple[str, List[str], List[str]]]:
        """Every directory from ``top`` on, with the names of directories and of all else in it, as
        :func:`os.walk` top down: names that are taken out of the first list are not entered. A directory
        that was removed since its name was listed is passed over; other errors are raised."""
        start = os.fsdecode(encode(top))
        left = [start]
        while left:
            path = left.pop()
            dirs: List[str] = []
            files: List[str] = []
            try:
                for page in self._pages(encode(path)):
                    for name, told in page:
                        (dirs if _stat.S_ISDIR(told[0]) else files).append(name)
            except (FileNotFoundError, NotADirectoryError):
                if path is start:
                    raise
                continue
            yield path, dirs, files
            left.extend(f"{path.rstrip('/')}/{name}" for name in reversed(dirs))

    def mkdir(self, path: StrPath, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._native.mkdir(encode(path), mode)

    def makedirs(self, path: StrPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        encoded = encode(path)
        try:
            self._native.mkdir(encoded, mode)
        except FileNotFoundError:
            above = os.path.dirname(encoded.rstrip(b"/"))
            if above in (b"", encoded):
                raise
            self.makedirs(above, mode, exist_ok=True)
            self.makedirs(path, mode, exist_ok)
        except FileExistsError:
            if not (exist_ok and self.isdir(path)):
                raise
        except OSError:
            # The root is there, and its name is none that could be made.
            if not (exist_ok and not encoded.strip(b"/") and self.isdir(path)):
                raise

    def create(self, path: StrPath, mode: int = 0o644) -> None:
        """Makes an empty file, which must not be there yet."""
        self._native.create(encode(path), mode)

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """Makes a symbolic link at ``path``."""
        self._native.symlink(encode(target), encode(path))

    def readlink(self, path: StrPath) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(self._native.readlink(encode(path)))

    def link(self, path: StrPath, new: StrPath) -> None:
        """Gives a file one more name."""
        self._native.link(encode(path), encode(new))

    def unlink(self, path: StrPath) -> None:
        """Removes a name of anything but a directory."""
        self._native.unlink(encode(path))

    remove = unlink

    def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory."""
        self._native.rmdir(encode(path))

    def rmtree(self, path: StrPath) -> None:
        """Removes a directory with everything in it. Symbolic links in it are removed and not followed."""
        encoded = encode(path)
        # What is removed while it is listed would not confuse the listing, but be read in vain.
        entries = [entry for page in self._pages(encoded) for entry in page]
        for name, told in entries:
            below = encoded.rstrip(b"/") + b"/" + os.fsencode(name)
            if _stat.S_ISDIR(told[0]):
                self.rmtree(below)
            else:
                self._native.unlink(below)
        if encoded.strip(b"/"):
            self._native.rmdir(encoded)

    def rename(self, path: StrPath, new: StrPath) -> None:
        """Moves a name; what has the new one already is replaced, as with rename(2)."""
        self._native.rename(encode(path), encode(new))

    replace = rename

    # --- files ---

    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Opens a file as the built-in :func:`open` does: the modes and arguments are the same, and so
        are the kinds of files that it returns. ``permissions`` are those of a file that is made.

        Others see what is written when the file is closed or synced.

        ::

            with fs.open("/scratch/log", "a") as file:
                print("done", file=file)
        """
        file: IO[Any] = open_file(
            self._native, path, mode, buffering, encoding, errors, newline, permissions
        )
        return file

    def read_bytes(self, path: StrPath) -> bytes:
        """The content of a file."""
        with self.open(path, "rb", 0) as file:
            content: bytes = file.read()
            return content

    def write_bytes(self, path: StrPath, data: bytes) -> int:
        """Writes a file anew."""
        with self.open(path, "wb", 0) as file:
            return file.write(data)

    # --- policies and subtrees ---

    def policy(self, path: StrPath) -> str:
        """The policy in force in a directory, as the text of a policy file. The last line is a comment
        that says where it is set."""
        return self._native.policy(encode(path)).decode()

    def set_policy(self, path: StrPath, policy: Optional[str]) -> None:
        """Sets the policy of a directory: the name of a preset such as ``batchfs``, of a cell such as
        ``weak-global``, or the text of a policy file; ``None`` removes its own. What was there before is
        brought under it when this returns, unless another client has the subtree: then it is when that
        gives it back."""
        self._native.set_policy(encode(path), None if policy is None else policy.encode())

    def status(self, path: StrPath) -> Status:
        """What is so of a file or directory at this moment: what it survives, and whether others see
        it."""
        encoded = encode(path)
        told: Dict[str, Optional[str]] = {}
        for name in ("file.durable", "file.visible", "dir.state"):
            if name == "dir.state" and not self.isdir(path):
                told[name] = None
            else:
                told[name] = self._native.get_xattr(encoded, b"cudele." + name.encode()).decode()
        return Status(told["file.durable"] or "", told["file.visible"] == "yes", told["dir.state"])

    def decouple(self, path: StrPath, policy: Optional[str] = None) -> Subtree:
        """Takes a directory, with everything below it, for this client alone: what is done there from
        now on is appended to a journal in memory, and asks no server. ``policy`` is as with
        :meth:`set_policy` and must decouple; without one, the one in force there is meant."""
        native = self._native.decouple(encode(path), None if policy is None else policy.encode())
        return Subtree(native, path)

    def attach(self, path: StrPath) -> Subtree:
        """Goes on with a subtree that an earlier process of this user decoupled on this machine, with
        what it persisted."""
        return Subtree(self._native.attach(encode(path)), path)

    def __repr__(self) -> str:
        return f"<cudele.FileSystem{'' if self._open else ' closed'}>"
