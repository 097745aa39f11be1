"""The package says of itself what is so."""

import ast
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import re
import shutil

import pytest

import cudele
from cudele import _cudele

HERE = pathlib.Path(cudele.__file__).parent
DOCUMENT = pathlib.Path(__file__).parents[3] / "docs/python.md"


def test_the_stub_has_what_the_native_half_has():
    def public(thing):
        hidden = ("__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__")
        return {name for name in vars(thing) if not name.startswith("__")} - set(hidden)

    tree = ast.parse((HERE / "_cudele.pyi").read_text())
    written = {node.name: node for node in tree.body if hasattr(node, "name")}
    native = {name for name in public(_cudele) if callable(getattr(_cudele, name))}
    assert native | {"_panic"} == set(written)
    for name, node in written.items():
        if isinstance(node, ast.ClassDef):
            methods = {method.name: method for method in node.body}
            assert set(methods) == public(getattr(_cudele, name)), name
            for method, stub in methods.items():
                signature = inspect.signature(getattr(getattr(_cudele, name), method))
                arguments = stub.args.posonlyargs + stub.args.args
                assert len(signature.parameters) == len(arguments), (name, method)
    assert (HERE / "py.typed").exists()


def test_everything_public_is_documented():
    for name in cudele.__all__:
        thing = getattr(cudele, name)
        assert inspect.getdoc(thing), name
        for method, value in vars(thing).items() if inspect.isclass(thing) else ():
            inherited = any(hasattr(base, method) for base in thing.__mro__[1:])
            own = inspect.isfunction(value) or isinstance(value, property)
            if own and not method.startswith("_") and not inherited and name != "DirEntry":
                assert inspect.getdoc(value), f"{name}.{method}"


def test_the_wheel_names_its_entry_point_and_its_version():
    wheel = importlib.metadata.distribution("cudele")
    assert wheel.version == cudele.__version__
    points = {point.name: point.value for point in wheel.entry_points}
    assert points == {"cudele": "cudele.fsspec.CudeleFileSystem"}


def blocks():
    text = DOCUMENT.read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_document_work(cluster, fs, monkeypatch, tmp_path):
    fs.makedirs("/scratch", exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDELE_DIR", os.fspath(cluster.dir))
    found = blocks()
    assert len(found) >= 5
    names = {}
    for number, block in enumerate(found):
        imports = re.findall(r"^import (\w+)", block, re.MULTILINE)
        missing = [name for name in imports if importlib.util.find_spec(name) is None]
        if missing:
            print(f"example {number} is not run: {', '.join(missing)} is not installed")
            continue
        exec(compile(block, f"{DOCUMENT.name}, example {number}", "exec"), names)


def test_types_are_right(tmp_path):
    mypy = pytest.importorskip("mypy.api", reason="mypy is not installed: types are not checked")
    config = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    options = ["--config-file", os.fspath(config), "--python-version", "3.10"]
    # Beside the package there are others, which the checker would take for parts of it.
    package = shutil.copytree(HERE, tmp_path / HERE.name, ignore=shutil.ignore_patterns("*.so"))
    said, wrong, code = mypy.run([*options, "--cache-dir", os.devnull, os.fspath(package)])
    assert code == 0, said + wrong
