"""A cluster for the tests: real daemons, the program of this tree, away from the user's own files."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

import cudele


def pytest_report_header():
    return f"cudele {cudele.__version__} from {pathlib.Path(cudele.__file__).parent}"


class Cluster:
    """A running cluster."""

    def __init__(self, program, home):
        self.program = program
        self.home = home
        self.dir = home / "c"

    def run(self, *arguments):
        """Runs the program. Returns what it printed."""
        command = [self.program, "--dir", str(self.dir), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def pids(self, daemon):
        """The processes that run a daemon of this cluster."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if line[1:4] == [daemon.encode(), b"--dir", os.fsencode(self.dir)]:
                found.append(int(entry.name))
        return found


@pytest.fixture(scope="session")
def cluster():
    program = os.environ.get("CUDELE_PROGRAM")
    if not program:
        pytest.exit("CUDELE_PROGRAM must name the program; `cargo xtask python` sets it", 2)
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="cudele-py.", dir="/tmp") as name:
        home = pathlib.Path(name)
        for variable in ("CUDELE_MON", "XDG_DATA_HOME"):
            os.environ.pop(variable, None)
        os.environ.update(HOME=name, CUDELE_STATE=str(home / "state"), CUDELE_DIR=str(home / "c"))
        cluster = Cluster(program, home)
        cluster.run("up")
        try:
            yield cluster
        finally:
            cluster.run("down")


@pytest.fixture(scope="session")
def fs(cluster):
    with cudele.connect(dir=cluster.dir) as fs:
        yield fs


_numbers = itertools.count()


@pytest.fixture
def top(fs):
    """An empty directory of the test's own."""
    path = f"/test.{next(_numbers)}"
    fs.mkdir(path)
    return path
