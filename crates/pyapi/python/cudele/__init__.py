"""Cudele: a file system in which every subtree chooses its own consistency and durability.

A connection has the calls of a file system, by path, and those of decoupled subtrees, in which a
program works at the speed of its memory until others are to see what it did::

    import cudele

    with cudele.connect() as fs:                        # as the program `cudele` finds its cluster
        fs.makedirs("/scratch/job", exist_ok=True)
        with fs.decouple("/scratch/job", "batchfs") as job:
            job.append_file("result", b"42")            # no request, nobody else sees it
        with fs.open("/scratch/job/result") as file:    # the policy was carried out: now they do
            print(file.read())

Every call that fails raises an :class:`OSError` of the class that Python has for its number, such as
:class:`FileNotFoundError`. Its message has the cause and the remedy, and its ``filename`` the path. All
calls let other threads run.

With fsspec installed, ``cudele:///path`` can be used by pandas, pyarrow, zarr and others: see
:mod:`cudele.fsspec`.
"""

import os as _os

from . import _cudele
from ._filesystem import DirEntry, FileSystem, Space, Status, connect
from ._io import FileIO
from ._subtree import Completion, Subtree

__all__ = [
    "Completion",
    "DirEntry",
    "FileIO",
    "FileSystem",
    "Space",
    "Status",
    "Subtree",
    "connect",
]
__version__: str = _cudele.__version__

# A connection has threads, which a child process does not get: in it, it is only refused.
_os.register_at_fork(after_in_child=_cudele._forked)
