"""Finds npm packages that tests need: in a folder named by `STEPKEEP_TEST_NODE_MODULES`, in a cache, then by npm.

Versions are pinned here. Without a package a test is skipped with a loud line; where `CI=true` it fails, so that a
machine without it does not pass for one that tested it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

VERSIONS = {"axe-core": "4.14.0", "typescript": "7.0.2"}
INSTALL_SECONDS = 120
CACHE = Path(tempfile.gettempdir()) / "stepkeep-test-npm"


@cache
def need_package(name: str) -> Path:
    """The folder of a package."""
    version = VERSIONS[name]
    folder = Path(os.environ.get("STEPKEEP_TEST_NODE_MODULES") or CACHE / f"{name}-{version}" / "node_modules") / name
    why = "" if (folder / "package.json").exists() else _install(name, version)
    if (folder / "package.json").exists():
        return folder
    said = (
        f"NOT TESTED: there is no npm package {name} {version} here ({why}). Install npm, "
        "or set STEPKEEP_TEST_NODE_MODULES to a node_modules folder that has it."
    )
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def _install(name: str, version: str) -> str:
    """Install a package in the cache, one test process at a time; says why it did not work."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not on PATH"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = CACHE / f"{name}-{version}"
        if (place / "node_modules" / name / "package.json").exists():
            return ""
        command = [npm, "install", "--no-save", "--ignore-scripts", "--prefix", str(place), f"{name}@{version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"npm took more than {INSTALL_SECONDS} s"
        return done.stderr.strip()[-300:]
