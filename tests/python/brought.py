"""Packages that tests need, and how the tree is found as an installed package would be."""

import importlib
import importlib.util
import os
import pathlib
import sys

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]


def is_brought(package):
    """Returns whether tools/setup.sh --python brings a package to the tests' environment."""
    commands = (TREE / "tools" / "setup.sh").read_text().replace("\\\n", " ").splitlines()
    return any("python-venv" in line and f" {package}==" in line for line in commands)


def missing(package):
    """Skips a test whose package is missing, or fails it where it should have been brought."""
    if os.environ.get("WEFT_PYTHON_ALL") == "1":
        pytest.fail(f"{package} is not installed, which tools/setup.sh --python-all brings")
    if os.environ.get("CI") == "1" and is_brought(package):
        pytest.fail(f"{package} is not installed, which tools/setup.sh --python brings")
    pytest.skip(f"needs {package}", allow_module_level=True)


def is_installed(package):
    """Returns whether a package can be imported; a folder without __init__.py, as
    tests/python/torch, is none."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def need(*packages):
    for package in packages:
        if not is_installed(package):
            missing(package)


def imported(module):
    """Returns a module of a package that a test needs."""
    need(module.partition(".")[0])
    return importlib.import_module(module)


def environment(folder):
    """Returns an environment in which a process finds this tree's package and, by its entry point,
    the backend of torch.compile."""
    entry = folder / "weft-0.dist-info"
    entry.mkdir(parents=True, exist_ok=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: weft\nVersion: 0\n")
    (entry / "entry_points.txt").write_text("[torch_dynamo_backends]\nweft = weft.torch:backend\n")
    paths = [str(TREE / "python"), str(folder), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
