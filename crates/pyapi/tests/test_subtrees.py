"""Decoupled subtrees."""

import errno

import pytest

import cudele


def test_a_job_is_seen_when_it_is_merged(cluster, fs, top):
    job = fs.decouple(top, "batchfs")
    results = job.append_mkdir("results")
    for number in range(100):
        job.append_file(f"file.{number:03}", b"result %d" % number, parent=results)
    job.append_file("summary", bytearray(b"all"), mode=0o600)
    assert job.pending == 102
    # By path, too, and without a request.
    fs.write_bytes(f"{top}/results/more", b"more")
    assert len(fs.listdir(f"{top}/results")) == 101
    assert fs.status(top).state.startswith("decoupled here") and not fs.status(top).visible
    with cudele.connect(dir=cluster.dir) as other:
        with pytest.raises(OSError) as caught:
            other.listdir(top)
        assert caught.value.errno == errno.EBUSY
        done = job.merge()
        assert done.created == 103 and done.rejected == 0 and done.seconds > 0
        assert sorted(other.listdir(top)) == ["results", "summary"]
        assert other.read_bytes(f"{top}/results/file.042") == b"result 42"
        assert other.stat(f"{top}/summary").st_mode & 0o777 == 0o600
    with pytest.raises(OSError) as caught:
        job.append_file("late")
    assert caught.value.errno == errno.EBADF


def test_a_block_ends_as_its_policy_says(cluster, fs, top):
    for name in ("weak", "kept", "gone"):
        fs.mkdir(f"{top}/{name}")
    with fs.decouple(f"{top}/weak", "weak-local") as job:
        job.append_file("f")
    assert cluster.run("ls", f"{top}/weak") == b"f\n"
    with cudele.connect(dir=cluster.dir) as own:
        with own.decouple(f"{top}/kept", "invisible-local") as job:
            job.append_file("f")
    assert cluster.run("ls", f"{top}/kept") == b""
    cluster.run("merge", f"{top}/kept")
    assert cluster.run("ls", f"{top}/kept") == b"f\n"
    with fs.decouple(f"{top}/gone", "invisible-none") as job:
        job.append_file("f")
    assert cluster.run("ls", f"{top}/gone") == b""


def test_what_failed_is_kept_and_can_be_gone_on_with(cluster, top):
    with pytest.raises(ZeroDivisionError):
        with cudele.connect(dir=cluster.dir) as fs, fs.decouple(top, "batchfs") as job:
            job.append_file("half")
            1 / 0
    with cudele.connect(dir=cluster.dir) as fs:
        job = fs.attach(top)
        job.append_file("rest")
        assert sorted(fs.listdir(top)) == ["half", "rest"]
        job.merge()
    assert cluster.run("ls", top) == b"half\nrest\n"


def test_others_see_the_work_grow_and_what_is_discarded_is_gone(cluster, fs, top):
    with cudele.connect(dir=cluster.dir) as other:
        job = fs.decouple(top, "consistency: append_client_journal\ninterfere_policy: allow\n")
        job.append_file("first")
        assert other.listdir(top) == []
        job.sync()
        assert other.listdir(top) == ["first"]
        job.append_file("second")
        job.persist()
        job.discard()
        assert other.listdir(top) == ["first"]


def test_paths_into_a_subtree_cost_no_request(cluster, fs, top):
    def requests():
        return sum(server["counters"]["requests"] for server in cluster.json("status")["mds"])

    path = f"{top}/a/b/job"
    fs.makedirs(path)
    fs.create(f"{top}/a/beside")
    job = fs.decouple(path, "batchfs")
    fs.mkdir(f"{path}/d")
    fs.symlink(f"{path}/d", f"{path}/absolute")
    fs.symlink("../../beside", f"{path}/out")
    before = requests()
    for number in range(200):
        fs.write_bytes(f"{path}/d/{number}", b"x")
        assert fs.stat(f"{path}/d/{number}").st_size == 1
    assert requests() - before < 50
    # What leads out of it again leads where it should.
    assert fs.exists(f"{path}/../../beside") and fs.exists(f"{path}/d/../../../beside")
    assert fs.isfile(f"{path}/out") and fs.isdir(f"{path}/absolute")
    assert len(fs.listdir(f"{path}/absolute/../d/.")) == 200
    file = fs.open(f"{path}/d/7", "r+b")
    job.merge()
    assert file.read() == b"x"
    file.write(b"y")
    file.close()
    with cudele.connect(dir=cluster.dir) as other:
        assert other.read_bytes(f"{path}/d/7") == b"xy"


def test_many_files_are_appended_in_one_call(fs, top):
    job = fs.decouple(top, "batchfs")
    job.append_files(((f"f{number}", b"") for number in range(20_000)), mode=0o600)
    with pytest.raises(OSError):
        job.append_files([("ok", b""), ("a/b", b""), ("never", b"")])
    assert job.pending == 20_001
    assert job.merge().created == 20_001
    assert not fs.exists(f"{top}/never") and fs.stat(f"{top}/f7").st_mode & 0o777 == 0o600


def test_a_policy_that_does_not_decouple_is_refused(fs, top):
    with pytest.raises(OSError) as caught:
        fs.decouple(top, "posix")
    assert caught.value.errno == errno.EINVAL and caught.value.filename == top
