"""``cudele://`` for fsspec, and so for pandas, pyarrow, zarr, dask and whatever else uses it.

::

    import fsspec, pandas

    with fsspec.open("cudele:///scratch/table.csv", "w") as file:
        file.write("x,y\\n1,2\\n")
    table = pandas.read_csv("cudele:///scratch/table.csv")

``cudele:///PATH`` is a path of the cluster that the program ``cudele`` would find;
``cudele://HOST:PORT/PATH`` one of the cluster whose monitor listens there. The storage options ``mon``
and ``dir`` say it otherwise, as :func:`cudele.connect` does.

Nothing is remembered that others may change: every listing is asked for. In a subtree that is decoupled
with :meth:`CudeleFileSystem.decouple`, the same paths cost no request.
"""

import atexit
import contextlib
import datetime
import errno
import io
import os
import re
import shutil
import stat as _stat
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from ._filesystem import DirEntry, FileSystem, connect
from ._subtree import Subtree

_URL = re.compile(r"(?:cudele::|cudele://(?P<authority>[^/]*))")
_HOST_AND_PORT = re.compile(r"(?:[^:\[\]/]+|\[[0-9A-Fa-f:.%]+\]):\d+")
_TYPES = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file"}


def _split(path: str) -> Tuple[Optional[str], str]:
    """The monitor's host and port, if a URL names them, and the path behind it."""
    found = _URL.match(path)
    if not found:
        return None, path
    authority, rest = found.group("authority"), path[found.end() :]
    if not authority:
        return None, rest
    if not _HOST_AND_PORT.fullmatch(authority):
        raise ValueError(
            f"{path}: {authority!r} is no HOST:PORT of a monitor; "
            f"write cudele:///{authority}{rest} for a path from the root on"
        )
    return authority, rest


# fsspec makes a file system for each thread. They share what costs a session on the server.
_connections: Dict[Tuple[int, Optional[str], Optional[str]], FileSystem] = {}
_connecting = threading.Lock()


def _connection(mon: Optional[str], dir: Optional[str]) -> FileSystem:
    # A process that was forked gets its own.
    key = os.getpid(), mon, dir
    found = _connections.get(key)
    if found is None or found.closed:
        with _connecting:
            found = _connections.get(key)
            if found is None or found.closed:
                found = _connections[key] = connect(mon, dir)
    return found


@atexit.register
def _disconnect() -> None:
    for (pid, _, _), connection in list(_connections.items()):
        if pid == os.getpid():
            # What is still open at the end of a program was left open by it.
            with contextlib.suppress(OSError):
                connection.close()


def _new_lock() -> None:
    # Another thread of the parent may have had it at that moment.
    global _connecting
    _connecting = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


class CudeleFileSystem(AbstractFileSystem):
    """A cluster as fsspec has file systems. See the module's documentation.

    A transaction (``with fs.transaction:``) writes each file beside its place under another name, and
    renames all of them at the end; after an exception none.
    """

    protocol = "cudele"
    root_marker = "/"

    def __init__(
        self,
        mon: Optional[str] = None,
        dir: Optional[str] = None,
        auto_mkdir: bool = False,
        **kwargs: Any,
    ) -> None:
        """``mon`` and ``dir``: as :func:`cudele.connect`. ``auto_mkdir``: directories of files that are
        written are made."""
        super().__init__(**kwargs)
        self.mon = mon
        self.dir = dir
        self.auto_mkdir = auto_mkdir

    @property
    def cudele(self) -> FileSystem:
        """The connection, for what fsspec has no word for. All threads of a process share it."""
        return _connection(self.mon, self.dir)

    @property
    def fsid(self) -> str:
        return f"cudele-{self.mon or self.dir or 'default'}"

    # --- paths and URLs ---

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, (list, tuple)):
            return [cls._strip_protocol(one) for one in path]
        _, path = _split(stringify_path(path))
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> Dict[str, Any]:
        authority, _ = _split(path)
        return {} if authority is None else {"mon": f"tcp:{authority}"}

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0] or "/"

    def _isfilestore(self) -> bool:
        return True

    # --- looking ---

    def _info(self, path: str, found: os.stat_result) -> Dict[str, Any]:
        kind = _stat.S_IFMT(found.st_mode)
        return {
            "name": path,
            "size": found.st_size if kind == _stat.S_IFREG else 0,
            "type": _TYPES.get(kind, "other"),
            "islink": False,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            # A file system of POSIX does not know when a file was made.
            "created": found.st_ctime,
            "mtime": found.st_mtime,
            # What tells two states of a file apart, for `ukey` and caches.
            "mtime_ns": found.st_mtime_ns,
        }

    def _followed(self, path: str, found: os.stat_result) -> Dict[str, Any]:
        """The same where a symbolic link may be: it counts as what it leads to."""
        if not _stat.S_ISLNK(found.st_mode):
            return self._info(path, found)
        destination = self.cudele.readlink(path)
        try:
            info = self._info(path, self.cudele.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            info = self._info(path, found)
        return {**info, "islink": True, "destination": destination}

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        return self._followed(path, self.cudele.lstat(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        path = self._strip_protocol(path)
        try:
            entries: List[DirEntry] = list(self.cudele.scandir(path))
        except NotADirectoryError:
            found = self.info(path)
            return [found if detail else found["name"]]
        if not detail:
            return sorted(entry.path for entry in entries)
        infos = [self._followed(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
        return sorted(infos, key=lambda info: info["name"])

    def walk(self, path: Any, maxdepth: Optional[int] = None, *args: Any, **kwargs: Any) -> Any:
        """As fsspec has it, which `find`, `du`, `get` and `rm` build on. It passes over directories that
        were removed meanwhile; other errors are raised, where fsspec leaves out what they hide."""
        if kwargs.get("on_error", "omit") == "omit":
            kwargs["on_error"] = _raise_unless_absent
        return super().walk(path, maxdepth, *args, **kwargs)

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.cudele.exists(self._strip_protocol(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.cudele.lstat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        return self.cudele.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.cudele.isfile(self._strip_protocol(path))

    def islink(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        try:
            found = self.cudele.lstat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return _stat.S_ISLNK(found.st_mode)

    def created(self, path: str) -> datetime.datetime:
        """When the attributes were changed last: when a file was made is not kept."""
        return self._time(path, "created")

    def modified(self, path: str) -> datetime.datetime:
        """When the content was changed last."""
        return self._time(path, "mtime")

    def _time(self, path: str, which: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)[which], tz=datetime.timezone.utc)

    # --- names ---

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.cudele.makedirs(self._parent(path), exist_ok=True)
        self.cudele.mkdir(path, **kwargs)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.cudele.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.cudele.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.cudele.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        if maxdepth is not None or (isinstance(path, str) and "*" in path):
            for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
                (self.rmdir if self.isdir(one) and not self.islink(one) else self.rm_file)(one)
            return
        for one in path if isinstance(path, (list, tuple)) else [path]:
            one = self._strip_protocol(one)
            if not self.isdir(one) or self.islink(one):
                self.cudele.unlink(one)
            elif recursive:
                self.cudele.rmtree(one)
            else:
                self.cudele.rmdir(one)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """Moves names. A directory moves as a whole, whatever ``recursive`` says; into a decoupled
        subtree or out of it, things are copied and then removed."""
        if not (isinstance(path1, str) and isinstance(path2, str)) or "*" in path1:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        into = path2.endswith("/")
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if into or self.isdir(path2):
            path2 = f"{path2.rstrip('/')}/{path1.rpartition('/')[2]}"
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        try:
            self.cudele.rename(path1, path2)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            super().mv(path1, path2, recursive=self.isdir(path1), maxdepth=maxdepth, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb") as sink:
            shutil.copyfileobj(source, sink, self.blocksize)

    def link(self, path1: str, path2: str) -> None:
        """Gives a file one more name."""
        self.cudele.link(self._strip_protocol(path1), self._strip_protocol(path2))

    def symlink(self, path1: str, path2: str) -> None:
        """Makes a symbolic link to ``path1`` at ``path2``."""
        self.cudele.symlink(_split(path1)[1], self._strip_protocol(path2))

    def chmod(self, path: str, mode: int) -> None:
        """Changes the permissions."""
        self.cudele.chmod(self._strip_protocol(path), mode)

    # --- content ---

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        self.cudele.open(path, "wb" if truncate else "ab", 0).close()
        self.cudele.utime(path)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> "CudeleFile":
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        return CudeleFile(self, path, mode, block_size, autocommit)

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        with self.cudele.open(self._strip_protocol(path), "rb", 0) as file:
            if start is None and end is None:
                whole: bytes = file.read()
                return whole
            size = file.seek(0, os.SEEK_END)
            first, last, _ = slice(start, end).indices(size)
            part: bytes = file.pread(max(last - first, 0), first)  # type: ignore[attr-defined]
            return part

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        sink = lpath if isfilelike(lpath) else outfile
        if sink is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with contextlib.ExitStack() as opened:
            source = opened.enter_context(self.open(rpath, "rb"))
            if sink is None:
                os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
                sink = opened.enter_context(open(lpath, "wb"))
            _copy(source, sink, self.size(rpath), callback)

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        self.makedirs(self._parent(rpath), exist_ok=True)
        with open(lpath, "rb") as source:
            with self.open(rpath, "xb" if mode == "create" else "wb") as sink:
                _copy(source, sink, os.path.getsize(lpath), callback)

    # --- what only Cudele has ---

    def decouple(self, path: str, policy: Optional[str] = None) -> Subtree:
        """Takes a directory for this client alone, as :meth:`cudele.FileSystem.decouple` does. Until the
        subtree ends, all that is done there through this file system is appended to a journal in memory::

            with fs.decouple("/scratch/job", "batchfs"):
                table.to_parquet("cudele:///scratch/job/part.0.parquet")
        """
        return self.cudele.decouple(self._strip_protocol(path), policy)


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _copy(source: Any, sink: Any, size: int, callback: Any) -> None:
    if callback is not None:
        callback.set_size(size)
    while True:
        piece = source.read(AbstractFileSystem.blocksize)
        if not piece:
            return
        sink.write(piece)
        if callback is not None:
            callback.relative_update(len(piece))


class CudeleFile(io.IOBase):
    """A file that fsspec has opened: bytes, with a buffer. In a transaction it has another name until
    that ends."""

    def __init__(
        self,
        fs: CudeleFileSystem,
        path: str,
        mode: str,
        block_size: Optional[int],
        autocommit: bool,
    ) -> None:
        self.fs = fs
        self.path = path
        self.mode = mode
        self.blocksize = block_size or fs.blocksize
        self.autocommit = autocommit or not set(mode) & set("wx")
        self._at = path
        self._connection = fs.cudele
        if not self.autocommit:
            if "x" in mode and fs.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            above, _, name = path.rpartition("/")
            self._at = f"{above}/.{name[:200]}.{os.getpid()}.{id(self):x}.uncommitted"
        self._file: Any = self._connection.open(self._at, mode, block_size or -1)

    @property
    def name(self) -> str:
        return self.path

    @property
    def full_name(self) -> str:
        name: str = self.fs.unstrip_protocol(self.path)
        return name

    @property
    def size(self) -> int:
        self._file.flush()
        return self._connection.stat(self._at).st_size

    @property
    def closed(self) -> bool:
        file = getattr(self, "_file", None)
        return file is None or bool(file.closed)

    def info(self) -> Dict[str, Any]:
        return self.fs.info(self._at)

    def close(self) -> None:
        if not self.closed:
            self._file.close()

    def commit(self) -> None:
        """Gives what was written in a transaction its name."""
        self.close()
        if self._at != self.path:
            if "x" in self.mode:
                self._connection.link(self._at, self.path)
                self._connection.unlink(self._at)
            else:
                self._connection.rename(self._at, self.path)
            self._at = self.path

    def discard(self) -> None:
        """Throws away what was written in a transaction."""
        self.close()
        if self._at != self.path:
            self._connection.unlink(self._at)
            self._at = self.path

    def read(self, size: Optional[int] = -1) -> bytes:
        data: bytes = self._file.read(size)
        return data

    def read1(self, size: int = -1) -> bytes:
        data: bytes = self._file.read1(size)
        return data

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        return count

    def readline(self, size: Optional[int] = -1) -> bytes:
        line: bytes = self._file.readline(size)
        return line

    def write(self, data: Any) -> int:
        count: int = self._file.write(data)
        return count

    def seek(self, offset: int, whence: int = 0) -> int:
        at: int = self._file.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._file.tell()
        return at

    def truncate(self, size: Optional[int] = None) -> int:
        count: int = self._file.truncate(size)
        return count

    def flush(self, force: bool = False) -> None:
        if not self.closed:
            self._file.flush()

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def __enter__(self) -> "CudeleFile":
        return self

    def __exit__(self, *ended: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)

    def __reduce__(self) -> Any:
        if self.mode not in ("rb", "r"):
            raise OSError(errno.EINVAL, f"{self.path}: only files that are read can be sent elsewhere")
        return _again, (self.fs, self.path, self.mode, self.blocksize, self.tell())

    def __repr__(self) -> str:
        return f"<CudeleFile {self.path!r} mode={self.mode!r}>"


def _again(fs: CudeleFileSystem, path: str, mode: str, block_size: int, at: int) -> CudeleFile:
    file = CudeleFile(fs, path, mode, block_size, True)
    file.seek(at)
    return file
