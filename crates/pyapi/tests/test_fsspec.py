"""`cudele://` as fsspec has it: its own tests for file systems, and what they leave out."""

import datetime
import errno
import os
import pickle
import threading

import pytest

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: `cudele://` is not tested")

from fsspec.tests import abstract  # noqa: E402

from cudele.fsspec import CudeleFileSystem  # noqa: E402


@pytest.fixture
def files(cluster, top):
    return CudeleFileSystem(dir=str(cluster.dir))


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, cluster):
        return CudeleFileSystem(dir=str(cluster.dir), auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, fs, tmp_path):
        path = f"/{tmp_path.name}.{id(self):x}"
        fs.mkdir(path)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(Fixtures, abstract.AbstractCopyTests):
    pass


class TestGet(Fixtures, abstract.AbstractGetTests):
    pass


class TestPut(Fixtures, abstract.AbstractPutTests):
    pass


class TestOpen(Fixtures, getattr(abstract, "AbstractOpenTests", object)):
    pass


class TestPipe(Fixtures, getattr(abstract, "AbstractPipeTests", object)):
    pass


def test_the_wheel_says_who_serves_the_protocol(cluster, top):
    assert fsspec.get_filesystem_class("cudele") is CudeleFileSystem
    with fsspec.open(f"cudele://{top}/f.txt", "wt") as file:
        file.write("through a URL")
    fs, path = fsspec.core.url_to_fs(f"cudele://{top}/f.txt")
    assert path == f"{top}/f.txt" and fs.unstrip_protocol(path) == f"cudele://{top}/f.txt"
    assert fs.cat(path) == b"through a URL" == cluster.run("cp", path, "-")


def test_urls_name_a_monitor_or_are_refused():
    split = CudeleFileSystem._strip_protocol
    assert split("cudele:///a/b/") == split("/a/b") == split("a/b") == "/a/b"
    assert split("cudele://") == split("/") == "/"
    assert split(["cudele://host:1/a", "b"]) == ["/a", "/b"]
    assert split("cudele://[::1]:7000/a") == "/a"
    options = CudeleFileSystem._get_kwargs_from_urls
    assert options("cudele://host:7000/a") == {"mon": "tcp:host:7000"} and options("/a") == {}
    with pytest.raises(ValueError, match="write cudele:///scratch/a for a path"):
        split("cudele://scratch/a")


def test_things_are_listed_and_described(files, top):
    files.makedirs(f"{top}/d/e")
    files.pipe(f"{top}/d/f", b"12345")
    files.symlink("f", f"{top}/d/l")
    files.symlink("none", f"{top}/d/x")
    assert files.ls(f"{top}/d", detail=False) == [f"{top}/d/{name}" for name in "eflx"]
    told = {info["name"][-1]: info for info in files.ls(f"cudele://{top}/d")}
    assert [told[name]["type"] for name in "eflx"] == ["directory", "file", "file", "other"]
    assert [told[name]["size"] for name in "eflx"] == [0, 5, 5, 0]
    assert told["l"]["islink"] and told["l"]["destination"] == "f" and not told["f"]["islink"]
    assert told["f"] == files.info(f"{top}/d/f") == files.ls(f"{top}/d/f")[0]
    assert files.find(top) == [f"{top}/d/f", f"{top}/d/l", f"{top}/d/x"]
    assert files.glob(f"{top}/d/[ef]") == [f"{top}/d/e", f"{top}/d/f"]
    assert files.du(top) == 10
    assert files.isdir(f"{top}/d") and files.isfile(f"{top}/d/l") and files.islink(f"{top}/d/l")
    assert not files.exists(f"{top}/d/x") and files.lexists(f"{top}/d/x")
    assert not files.exists(f"{top}/d/f/g")
    assert [path for path, _, _ in files.walk(top)] == [top, f"{top}/d", f"{top}/d/e"]
    with pytest.raises(FileNotFoundError):
        files.ls(f"{top}/none")
    with pytest.raises(FileNotFoundError):
        files.info(f"{top}/none")


def test_nothing_is_remembered_that_others_change(files, cluster, top):
    assert files.ls(top) == []
    cluster.run("mkdir", f"{top}/new")
    assert files.ls(top, detail=False) == [f"{top}/new"]


def test_files_are_read_written_and_added_to(files, top):
    path = f"{top}/f"
    with files.open(path, "wb") as file:
        assert file.write(b"one\ntwo\n") == 8 and file.size == 8 and file.tell() == 8
    with files.open(path, "ab") as file:
        file.write(b"three\n")
    with files.open(path) as file:
        assert (file.size, file.readline(), list(file)) == (14, b"one\n", [b"two\n", b"three\n"])
        file.seek(-6, os.SEEK_END)
        room = bytearray(3)
        assert file.readinto(room) == 3 and room == b"thr" and file.read() == b"ee\n"
    with files.open(path, "rt") as file:
        assert file.read().split() == ["one", "two", "three"]
    assert files.cat_file(path, 4, 7) == b"two" and files.cat_file(path, -6) == b"three\n"
    assert files.cat_ranges([path, path], [0, 4], [3, 7]) == [b"one", b"two"]
    assert files.head(path, 3) == b"one" and files.tail(path, 4) == b"ree\n"
    assert files.read_block(path, 1, 4, b"\n") == b"two\n"
    with files.open(path, "r+b") as file:
        file.write(b"ONE")
    assert files.cat(path).startswith(b"ONE\n")
    with files.open(f"{path}.gz", "wt", compression="infer") as file:
        file.write("packed")
    with files.open(f"{path}.gz", compression="gzip") as file:
        assert file.read() == b"packed"
    with pytest.raises(FileExistsError):
        files.open(path, "xb")
    with pytest.raises(FileNotFoundError):
        files.open(f"{top}/none/f", "wb")


def test_names_are_made_moved_and_removed(files, top):
    files.mkdir(f"{top}/a/b")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{top}/a/b")
    with pytest.raises(FileNotFoundError):
        files.mkdir(f"{top}/x/y", create_parents=False)
    files.touch(f"{top}/a/f")
    files.mv(f"{top}/a", f"{top}/c", recursive=True)
    files.mv(f"{top}/c/f", f"{top}/c/b/")
    assert files.find(top) == [f"{top}/c/b/f"]
    files.cp_file(f"{top}/c/b/f", f"{top}/g")
    with pytest.raises(OSError):
        files.rm(f"{top}/c")
    files.rm([f"{top}/c", f"{top}/g"], recursive=True)
    assert files.ls(top) == []
    files.touch(f"{top}/1.x")
    files.touch(f"{top}/2.x")
    files.touch(f"{top}/3.y")
    files.rm(f"{top}/*.x")
    assert files.ls(top, detail=False) == [f"{top}/3.y"]
    files.rm_file(f"{top}/3.y")
    files.rmdir(top)
    assert not files.exists(top)


def test_times_are_told(files, top):
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=5)
    files.pipe(f"{top}/f", b"x")
    assert files.modified(f"{top}/f") > before and files.created(f"{top}/f") > before
    first = files.ukey(f"{top}/f")
    files.pipe(f"{top}/f", b"y")
    assert files.ukey(f"{top}/f") != first
    files.touch(f"{top}/f", truncate=False)
    assert files.cat(f"{top}/f") == b"y"
    files.touch(f"{top}/f")
    assert files.cat(f"{top}/f") == b""


def test_a_transaction_gives_all_files_their_names_or_none(files, cluster, top):
    files.pipe(f"{top}/old", b"old")
    with pytest.raises(ZeroDivisionError):
        with files.transaction:
            files.pipe(f"{top}/old", b"new")
            files.pipe(f"{top}/made", b"made")
            1 / 0
    assert files.ls(top, detail=False) == [f"{top}/old"] and files.cat(f"{top}/old") == b"old"
    with files.transaction:
        files.pipe(f"{top}/old", b"new")
        with files.open(f"{top}/made", "xb") as file:
            file.write(b"made")
        names = cluster.run("ls", top).decode().split()
        assert sorted(names)[-1] == "old" and f"{top}/made" not in files.ls(top, detail=False)
        assert all(name.endswith(".uncommitted") for name in names if name != "old")
        assert cluster.run("cp", f"{top}/old", "-") == b"old"
    assert files.ls(top, detail=False) == [f"{top}/made", f"{top}/old"]
    assert files.cat(f"{top}/old") == b"new" and files.cat(f"{top}/made") == b"made"


def test_a_decoupled_subtree_is_used_through_the_same_paths(files, cluster, top):
    files.mkdir(f"{top}/job")
    files.pipe(f"{top}/outside", b"outside")
    with files.decouple(f"{top}/job", "batchfs") as job:
        files.mkdir(f"{top}/job/part")
        files.pipe(f"{top}/job/part/0", b"0")
        # Across the border of a subtree nothing is renamed, but copied.
        files.mv(f"{top}/outside", f"{top}/job/inside")
        assert job.pending >= 3
        assert files.find(f"{top}/job") == [f"{top}/job/inside", f"{top}/job/part/0"]
    assert cluster.run("find", top).decode().split()[-1].endswith("part/0")
    assert cluster.run("cp", f"{top}/job/inside", "-") == b"outside"


def test_file_systems_and_files_that_are_read_can_be_sent_elsewhere(files, top):
    files.pipe(f"{top}/f", b"0123456789")
    again = pickle.loads(pickle.dumps(files))
    assert again == files and again.cat(f"{top}/f") == b"0123456789"
    with files.open(f"{top}/f") as file:
        file.read(4)
        with pickle.loads(pickle.dumps(file)) as copy:
            assert copy.read() == b"456789"
    with files.open(f"{top}/f", "wb") as file:
        with pytest.raises(OSError):
            pickle.dumps(file)


def test_threads_share_a_connection_and_child_processes_have_their_own(files, cluster, top):
    files.pipe(f"{top}/f", b"x")
    found = []

    def look():
        other = CudeleFileSystem(dir=str(cluster.dir))
        found.append((other is files, other.cudele is files.cudele))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0][1]
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if files.cat(f"{top}/f") == b"x" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_mapper_keeps_values_under_keys(files, top):
    mapper = fsspec.get_mapper(f"cudele://{top}/store", dir=str(files.dir))
    mapper["a/b"] = b"value"
    assert list(mapper) == ["a/b"] and mapper["a/b"] == b"value" and "c" not in mapper
    del mapper["a/b"]
    assert len(mapper) == 0


def test_a_walk_passes_over_what_is_removed_and_hides_no_other_error(files, top, monkeypatch):
    for name in ("a", "b"):
        files.makedirs(f"{top}/{name}", exist_ok=True)
        files.touch(f"{top}/{name}/file")
    ls = files.ls

    def failing(error):
        def one(path, *args, **kwargs):
            if path.endswith("/b"):
                raise error
            return ls(path, *args, **kwargs)

        return one

    monkeypatch.setattr(files, "ls", failing(FileNotFoundError(errno.ENOENT, "removed")))
    assert files.find(top) == [f"{top}/a/file"]
    monkeypatch.setattr(files, "ls", failing(OSError(errno.ESTALE, "not found")))
    with pytest.raises(OSError) as raised:
        files.find(top)
    assert raised.value.errno == errno.ESTALE
