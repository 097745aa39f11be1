"""Decoupled subtrees."""

from types import TracebackType
from typing import Iterable, NamedTuple, Optional, Tuple, Type

from . import _cudele
from ._paths import Data, StrPath, data_of, encode


class Completion(NamedTuple):
    """What a completion or merge did."""

    #: Events of the journal.
    events: int
    #: Bytes of the journal.
    bytes: int
    #: Inodes that were made.
    created: int
    #: Names of others that lost to this client's.
    replaced: int
    #: Events that were not carried out, because others removed what they were about.
    rejected: int
    #: How long it took.
    seconds: float


class Subtree:
    """A subtree that this process has decoupled: its own until it is merged or discarded.

    Paths in it work with every other call of the same connection, without any request to the server.
    ``append_…`` is faster still: it adds to the journal without looking.

    As a context manager it ends as its policy says (:meth:`finish`). If the block ends with an
    exception, what was done is kept on this machine's disk (:meth:`keep`): when the connection is closed,
    go on with :meth:`FileSystem.attach` of another one, ``cudele merge`` or ``cudele discard``::

        with fs.decouple("/scratch/job", "batchfs") as job:
            for step in range(1000):
                job.append_file(f"step.{step:06}", b"done")
    """

    def __init__(self, native: "_cudele.Subtree", path: StrPath) -> None:
        self._native = native
        self._open = True
        self.path = path
        #: The inode number of the subtree's root, in which files are appended by default.
        self.root: int = native.root()

    def append_file(
        self,
        name: StrPath,
        data: Data = b"",
        *,
        parent: Optional[int] = None,
        mode: int = 0o644,
    ) -> int:
        """Appends the making of a file with content: the fastest way to make one.

        Unless the policy says ``check: client``, nobody looks whether the name is there already, or
        whether ``parent``, the inode number of a directory of the subtree, is one. What cannot be
        carried out is counted by the merge as rejected. Returns the number of the new file.
        """
        parent = self.root if parent is None else parent
        return self._native.append_file(parent, encode(name), data_of(data), mode)

    def append_files(
        self,
        files: Iterable[Tuple[StrPath, Data]],
        *,
        parent: Optional[int] = None,
        mode: int = 0o644,
    ) -> None:
        """Appends many files, names and contents, in one call. Those before one that fails are made.

        ::

            job.append_files((f"file.{n:07}", b"") for n in range(1_000_000))
        """
        parent = self.root if parent is None else parent
        listed = [(encode(name), data_of(data)) for name, data in files]
        self._native.append_files(parent, listed, mode)

    def append_mkdir(
        self, name: StrPath, *, parent: Optional[int] = None, mode: int = 0o755
    ) -> int:
        """Appends the making of a directory, as :meth:`append_file`. Returns its inode number, in which
        more can be appended."""
        parent = self.root if parent is None else parent
        return self._native.append_mkdir(parent, encode(name), mode)

    @property
    def pending(self) -> int:
        """How many events are held and not merged."""
        return self._native.pending()

    def persist(self) -> None:
        """Makes what is held as durable as the policy promises. Others see nothing of it."""
        self._native.persist()

    def complete(self) -> Completion:
        """Carries out every mechanism of the policy: what it promises holds when this returns. The
        subtree stays this client's."""
        return Completion(*self._native.complete())

    def sync(self) -> Completion:
        """Namespace sync: shows others what is held so far, whatever the policy says. The subtree stays
        this client's."""
        return Completion(*self._native.sync())

    def keep(self) -> Completion:
        """Keeps what was done on this machine's disk, whatever the policy says."""
        return Completion(*self._native.keep())

    def merge(self) -> Completion:
        """Merges and gives the subtree back: everybody sees what was done and may work there. Closes
        the handle; if it fails, what is held is still held."""
        done = Completion(*self._native.merge())
        self._open = False
        return done

    def discard(self) -> None:
        """Gives the subtree back and throws away what was not merged. Closes the handle."""
        self._native.discard()
        self._open = False

    def finish(self) -> Tuple[str, Completion]:
        """Ends work that succeeded as its policy says, and closes the handle: under a policy that shows
        it to others it is merged (``"merge"``), under one that keeps it it is kept, and stays this
        client's (``"complete"``), and under one that keeps nothing it is gone (``"discard"``). Returns
        which, and what was done."""
        ending, done = self._native.finish()
        self._open = False
        return ending, Completion(*done)

    def close(self) -> None:
        """Closes the handle and nothing else: the subtree stays this client's. When the connection is
        closed, what was persisted can be gone on with by :meth:`FileSystem.attach` of another one."""
        self._native.close()
        self._open = False

    def __enter__(self) -> "Subtree":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._open:
            return
        if kind is None:
            self.finish()
        else:
            self.keep()
            self.close()

    def __repr__(self) -> str:
        return f"<cudele.Subtree {self.path!r}{'' if self._open else ' closed'}>"
