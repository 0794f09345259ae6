"""Finds programs of the system that tests need: by a variable of the environment, then on PATH, then by apt-get.

Without one a test is skipped with a loud line; where `CI=true` it fails, so that a machine without the program does not
pass for one that tested it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from functools import cache
from pathlib import Path

import pytest

INSTALL_SECONDS = 300


def need_program(name: str, package: str) -> str:
    """The path of a program; installs its Debian package where that is possible."""
    found = _find(name, package)
    if found is not None:
        return found
    said = f"NOT TESTED: there is no {name} here. Install the package {package}, or set {_variable(name)} to its path."
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def _variable(name: str) -> str:
    return f"STEPKEEP_TEST_{name.upper().replace('-', '_')}"


@cache
def _find(name: str, package: str) -> str | None:
    given = os.environ.get(_variable(name))
    if given:
        return given
    # Debian puts servers into /usr/sbin, which is not on the PATH of every user.
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    found = shutil.which(name, path=places)
    if found is not None or os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        return found
    apt = shutil.which("apt-get")
    if apt is None:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wanted = [apt, "install", "--yes", "--no-install-recommends", package]
    try:
        subprocess.run(wanted, check=True, capture_output=True, timeout=INSTALL_SECONDS, env=environment)
    except (subprocess.SubprocessError, OSError) as problem:
        warnings.warn(f"{package} could not be installed: {type(problem).__name__}", stacklevel=2)
    return shutil.which(name, path=places)
