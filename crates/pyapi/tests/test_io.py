"""Files do what Python's own do: the same steps on both, and the same results."""

import io
import random

import pytest

STEPS = {
    "w+b": ["write", "seek", "read", "tell", "truncate", "readinto", "seek_end", "seek_by"],
    "r+b": ["write", "seek", "read", "tell", "truncate", "readinto", "seek_end", "seek_by"],
    "a+b": ["write", "seek", "read", "tell", "seek_end"],
    "rb": ["seek", "read", "tell", "readinto", "seek_end", "seek_by", "readall", "readline"],
    "wb": ["write", "seek", "tell", "truncate", "seek_end"],
    "ab": ["write", "tell"],
}


def step(file, name, chance):
    size = chance.choice([0, 1, 7, 4096, 70_000])
    if name == "write":
        return file.write(chance.randbytes(size))
    if name == "seek":
        return file.seek(size)
    if name == "seek_end":
        return file.seek(0, io.SEEK_END)
    if name == "seek_by":
        return file.seek(3, io.SEEK_CUR)
    if name == "read":
        return file.read(size)
    if name == "readall":
        return file.read()
    if name == "readline":
        return file.readline(size)
    if name == "truncate":
        return file.truncate(size)
    if name == "readinto":
        room = bytearray(size)
        return file.readinto(room), room
    return file.tell()


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("buffering", [-1, 0, 5000])
def test_random_steps_give_what_a_local_file_gives(fs, top, tmp_path, mode, buffering):
    for seed in range(6):
        content = random.Random(seed).randbytes(100_000)
        names = f"{top}/f", tmp_path / "f"
        fs.write_bytes(names[0], content)
        names[1].write_bytes(content)
        chances = random.Random(seed), random.Random(seed)
        # Where a file is that is added to shows how much a buffer holds.
        alike = 1 << 20 if buffering < 0 else buffering
        with fs.open(names[0], mode, buffering) as mine, open(names[1], mode, alike) as local:
            for number in range(40):
                name = random.Random((seed, number).__hash__()).choice(STEPS[mode])
                got, wanted = step(mine, name, chances[0]), step(local, name, chances[1])
                assert got == wanted, (mode, buffering, seed, number, name)
        assert fs.read_bytes(names[0]) == names[1].read_bytes(), (mode, buffering, seed)


def test_text_is_encoded_and_lines_are_found(fs, top, tmp_path):
    for mode, written in [("w", "grün\nblau\n"), ("a", "rot"), ("x", "never")]:
        for open_one, path in [(fs.open, f"{top}/f"), (open, tmp_path / "f")]:
            if mode == "x":
                with pytest.raises(FileExistsError):
                    open_one(path, mode)
                continue
            with open_one(path, mode, encoding="utf-16") as file:
                file.write(written)
    assert fs.read_bytes(f"{top}/f") == (tmp_path / "f").read_bytes()
    with fs.open(f"{top}/f", encoding="utf-16") as file:
        assert file.readlines()[0] == "grün\n" and file.mode == "r"


def test_wrong_modes_are_refused_as_python_does(fs, top):
    for mode in ["", "rw", "z", "rbt", "rr", "+"]:
        with pytest.raises(ValueError):
            fs.open(f"{top}/f", mode)
    assert not fs.exists(f"{top}/f")
    with pytest.raises(ValueError):
        fs.open(f"{top}/f", "wb", encoding="utf-8")
    with pytest.raises(ValueError):
        fs.open(f"{top}/f", "w", 0)
    with fs.open(f"{top}/f", "wb") as file:
        with pytest.raises(io.UnsupportedOperation):
            file.read()
    with pytest.raises(ValueError):
        file.write(b"")
    with fs.open(f"{top}/f", "rb", 0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()


def test_permissions_positions_and_durability(cluster, fs, top):
    with fs.open(f"{top}/f", "wb", permissions=0o600) as file:
        file.write(bytes(3 << 20))
        file.write(memoryview(b"end"))
        file.flush()
        file.raw.fsync()
        assert cluster.run("cp", f"{top}/f", "-")[-3:] == b"end"
    assert fs.stat(f"{top}/f").st_mode & 0o777 == 0o600
    with fs.open(f"{top}/f", "rb", 0) as file:
        assert file.pread(10, (3 << 20) - 7) == bytes(7) + b"end" and file.tell() == 0
        assert len(file.read()) == (3 << 20) + 3 and file.read() == b""
