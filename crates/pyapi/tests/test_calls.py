"""The calls of a connection, against real daemons."""

import errno
import gc
import os
import signal
import stat
import subprocess
import threading
import time

import pytest

import cudele
from cudele import _cudele


def test_names_are_made_seen_moved_and_removed(cluster, fs, top):
    fs.mkdir(f"{top}/d", 0o750)
    assert stat.S_IMODE(fs.stat(f"{top}/d").st_mode) == 0o750
    fs.create(f"{top}/d/f")
    fs.symlink("d/f", f"{top}/l")
    fs.link(f"{top}/d/f", f"{top}/g")
    assert sorted(fs.listdir(top)) == ["d", "g", "l"]
    assert fs.readlink(f"{top}/l") == "d/f"
    assert fs.stat(f"{top}/g").st_nlink == 2
    assert fs.stat(f"{top}/l").st_ino == fs.stat(f"{top}/g").st_ino
    assert stat.S_ISLNK(fs.lstat(f"{top}/l").st_mode)
    fs.rename(f"{top}/g", f"{top}/h")
    assert cluster.run("ls", top).split() == [b"d", b"h", b"l"]
    fs.unlink(f"{top}/d/f")
    fs.rmdir(f"{top}/d")
    assert not fs.exists(f"{top}/d") and fs.exists(f"{top}/h") and not fs.exists(f"{top}/l")
    fs.rmtree(top)
    assert not fs.exists(top)


def test_paths_are_text_bytes_or_like_a_path(fs, top):
    import pathlib

    fs.create(pathlib.PurePosixPath(top) / "größe")
    fs.create(os.fsencode(top) + b"/\xff")
    assert sorted(fs.listdir(top.encode())) == ["größe", "\udcff"]
    assert fs.exists(f"{top}/\udcff")
    with pytest.raises(OSError) as caught:
        fs.create(f"{top}/a\0b")
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(TypeError):
        fs.create(7)


def test_directories_above_are_made(fs, top):
    fs.makedirs(f"{top}/a/b/c")
    assert fs.isdir(f"{top}/a/b/c")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{top}/a/b/c")
    fs.makedirs(f"{top}/a/b/c", exist_ok=True)
    fs.makedirs("/", exist_ok=True)
    fs.create(f"{top}/f")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{top}/f", exist_ok=True)
    with pytest.raises(NotADirectoryError):
        fs.makedirs(f"{top}/f/g")
    assert [(path[len(top):], dirs, files) for path, dirs, files in fs.walk(top)] == [
        ("", ["a"], ["f"]),
        ("/a", ["b"], []),
        ("/a/b", ["c"], []),
        ("/a/b/c", [], []),
    ]


def test_large_directories_are_listed_in_pieces(fs, top):
    names = {f"file.{number:05}" for number in range(5000)}
    with fs.decouple(top, "batchfs") as job:
        job.append_files((name, b"x") for name in names)
    entries = fs.scandir(top)
    first = next(entries)
    assert first.is_file() and not first.is_dir() and not first.is_symlink()
    assert first.stat().st_size == 1 and first.inode() == fs.stat(first.path).st_ino
    # What comes later was not fetched yet; what was there all the time comes once.
    fs.create(f"{top}/later")
    seen = [first.name, *(entry.name for entry in entries)]
    assert set(seen) - {"later"} == names and len(seen) == len(set(seen))


def test_attributes_can_be_changed(fs, top):
    path = f"{top}/f"
    fs.write_bytes(path, b"0123456789")
    fs.truncate(path, 4)
    assert fs.read_bytes(path) == b"0123"
    fs.chmod(path, 0o600)
    fs.utime(path, ns=(1_000_000_001, 2_000_000_002))
    found = fs.stat(path)
    assert stat.S_IMODE(found.st_mode) == 0o600 and found.st_size == 4
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    assert found.st_mtime == 2.000000002 and found[8] == 2
    fs.utime(path, (None, 5.5))
    assert (fs.stat(path).st_atime_ns, fs.stat(path).st_mtime_ns) == (1_000_000_001, 5_500_000_000)
    before = time.time() - 5
    fs.utime(path)
    assert fs.stat(path).st_mtime > before
    assert fs.access(path, os.R_OK | os.W_OK) and not fs.access(f"{top}/none", os.F_OK)
    with pytest.raises(IsADirectoryError):
        fs.truncate(top, 0)
    fs.setxattr(path, "user.colour", b"red")
    assert fs.getxattr(path, "user.colour") == b"red" and fs.listxattr(path) == ["user.colour"]
    fs.removexattr(path, "user.colour")
    with pytest.raises(OSError) as caught:
        fs.getxattr(path, "user.colour")
    assert caught.value.errno == errno.ENODATA and "user.colour" in str(caught.value)
    assert 0 < fs.space().available <= fs.space().total


def test_errors_are_those_of_python_with_path_cause_and_remedy(fs, top):
    with pytest.raises(FileNotFoundError) as caught:
        fs.stat(f"{top}/none")
    error = caught.value
    assert error.errno == errno.ENOENT and error.filename == f"{top}/none"
    assert str(error) == f"[Errno 2] no such file or directory: '{top}/none'"
    with pytest.raises(OSError) as caught:
        fs.stat("relative")
    assert caught.value.errno == errno.EINVAL
    assert caught.value.remedy == "name it from the root of the namespace on"
    assert caught.value.remedy in str(caught.value)
    for error, call in [
        (FileExistsError, lambda: fs.mkdir(top)),
        (NotADirectoryError, lambda: (fs.create(f"{top}/f"), fs.listdir(f"{top}/f"))),
        (IsADirectoryError, lambda: fs.open(top, "r")),
        (FileNotFoundError, lambda: fs.open(f"{top}/x/y", "w")),
    ]:
        with pytest.raises(error):
            call()
    fs.create(f"{top}/e")
    with pytest.raises(OSError) as caught:
        fs.rmdir(top)
    assert caught.value.errno == errno.ENOTEMPTY


def test_a_cluster_that_is_not_there_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(OSError) as caught:
        cudele.connect(dir=tmp_path)
    assert "cudele up" in str(caught.value)
    with pytest.raises(ConnectionRefusedError):
        cudele.connect(mon="plain:127.0.0.1:1")


def test_what_is_closed_says_so(cluster, top):
    fs = cudele.connect(dir=cluster.dir)
    file = fs.open(f"{top}/f", "wb")
    with pytest.raises(OSError) as caught:
        fs.close()
    assert caught.value.errno == errno.EBUSY and not fs.closed
    file.close()
    fs.close()
    fs.close()
    assert fs.closed
    with pytest.raises(OSError) as caught:
        fs.listdir("/")
    assert caught.value.errno == errno.EBADF and "closed" in str(caught.value)


def test_what_nobody_refers_to_any_more_is_closed(cluster, top):
    fs = cudele.connect(dir=cluster.dir)
    fs.open(f"{top}/f", "wb", 0).write(b"written")
    gc.collect()
    fs.close()
    assert cluster.run("cp", f"{top}/f", "-") == b"written"


@pytest.mark.skipif(not hasattr(_cudele, "_panic"), reason="a release build has no call that panics")
def test_a_panic_is_an_error(capfd):
    assert _cudele._panic(0) == 1
    with pytest.raises(OSError) as caught:
        _cudele._panic(3)
    assert caught.value.errno == errno.EIO and "defect of the library" in str(caught.value)
    capfd.readouterr()


def test_other_threads_run_while_a_call_waits(cluster, fs, top):
    pids = cluster.pids("mds")
    assert len(pids) == 1
    answered = threading.Event()
    # It knows nothing yet, and has to ask.
    other = cudele.connect(dir=cluster.dir)

    def ask():
        other.stat(top)
        answered.set()

    os.kill(pids[0], signal.SIGSTOP)
    # Were the interpreter locked, nobody but another process could let the server go on.
    rescue = subprocess.Popen(["sh", "-c", f"sleep 10; kill -CONT {pids[0]}"])
    asking = threading.Thread(target=ask)
    try:
        asking.start()
        for _ in range(20):
            time.sleep(0.01)
        waited = not answered.is_set()
    finally:
        rescue.kill()
        rescue.wait()
        os.kill(pids[0], signal.SIGCONT)
    asking.join()
    other.close()
    assert waited and answered.is_set()


def test_threads_share_a_connection(fs, top):
    def work(number):
        for step in range(25):
            fs.write_bytes(f"{top}/{number}.{step}", b"%d" % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fs.listdir(top)) == 100 and fs.read_bytes(f"{top}/3.24") == b"3"


def test_a_child_process_is_refused_the_connection_and_makes_its_own(cluster, fs, top):
    fs.write_bytes(f"{top}/f", b"parent")
    file = fs.open(f"{top}/f", "rb")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: fs.listdir(top), lambda: file.read()):
                try:
                    call()
                except OSError as error:
                    assert error.errno == errno.ESTALE and "connect anew" in error.remedy
                else:
                    raise AssertionError("not refused")
            with cudele.connect(dir=cluster.dir) as own:
                assert own.read_bytes(f"{top}/f") == b"parent"
                own.write_bytes(f"{top}/g", b"child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read() == b"parent" and fs.read_bytes(f"{top}/g") == b"child"
    file.close()


def test_policies_are_set_told_and_removed(fs, top):
    fs.set_policy(top, "posix")
    assert fs.policy(top).endswith("# set here")
    assert "rpcs" in fs.policy(top)
    fs.set_policy(top, None)
    assert "inherited" in fs.policy(top) or "default" in fs.policy(top)
    with pytest.raises(OSError) as caught:
        fs.set_policy(top, "no such policy: [")
    assert caught.value.errno == errno.EINVAL
    assert fs.status(top).visible and fs.status(top).state.startswith("shared")
    fs.write_bytes(f"{top}/f", b"")
    fs.sync()
    assert fs.status(f"{top}/f") == ("global", True, None)
