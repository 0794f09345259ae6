"""Finds programs of the system that tests need: by a variable of the environment, then on PATH, then by apt-get.

Without one a test is skipped with a loud line; where `CI=true` it fails, so that a machine without the program does not
pass for one that tested it.
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

INSTALL_SECONDS = 300
LOCK = Path(tempfile.gettempdir()) / "stepkeep-test-packages.lock"


def need_program(name: str, package: str) -> str:
    """The path of a program; installs its Debian package where that is possible."""
    found = _find(name) or (_installed(name, package) if _may_install() else None)
    if found is not None:
        return found
    said = f"NOT TESTED: there is no {name} here. Install the package {package}, or set {_variable(name)} to its path."
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def _variable(name: str) -> str:
    return f"STEPKEEP_TEST_{name.upper().replace('-', '_')}"


def _find(name: str) -> str | None:
    # Debian puts servers into /usr/sbin, which is not on the PATH of every user.
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return os.environ.get(_variable(name)) or shutil.which(name, path=places)


def _may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


@cache
def _installed(name: str, package: str) -> str | None:
    """Install a package, after a new list of packages: a fresh machine has none. One test process at a time."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _find(name) is None:
            for words in (["update"], ["install", "--yes", "--no-install-recommends", package]):
                subprocess.run(
                    ["apt-get", "--quiet", *words],
                    capture_output=True,
                    timeout=INSTALL_SECONDS,
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                    check=False,
                )
    return _find(name)
