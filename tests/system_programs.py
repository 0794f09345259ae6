"""Programs of the system that tests need. `make test` installs them first; a test only looks for them.

`python -m tests.system_programs` installs what is missing with apt-get, as root on Debian, and says what it does.
Without a program a test is skipped with a loud line; where `CI=true` it fails, so that a machine without it does not
pass for one that tested it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = {
    "chromium": "chromium",
    "nats-server": "nats-server",
    "node": "nodejs",
    "npm": "npm",
    "redis-server": "redis-server",
    "unshare": "util-linux",
}
"""Each program with its Debian package."""


def need_program(name: str) -> str:
    """The path of a program."""
    if (found := find(name)) is not None:
        return found
    said = (
        f"NOT TESTED: there is no {name} here. `make programs` installs {PACKAGES[name]} as root on Debian; "
        f"elsewhere set {_variable(name)} to its path."
    )
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def find(name: str) -> str | None:
    """A program by its variable of the environment, or on PATH."""
    # Debian puts servers into /usr/sbin, which is not on the PATH of every user.
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return os.environ.get(_variable(name)) or shutil.which(name, path=places)


def _variable(name: str) -> str:
    return f"STEPKEEP_TEST_{name.upper().replace('-', '_')}"


def install() -> None:
    """Install the packages of the programs that are missing, after a new list of packages: a fresh machine has none."""
    missing = sorted({package for name, package in PACKAGES.items() if find(name) is None})
    if not missing:
        return
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        sys.stdout.write(f"not installed, because this is not root on Debian: {', '.join(missing)}\n")
        return
    sys.stdout.write(f"installing for the tests: {', '.join(missing)}\n")
    sys.stdout.flush()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", "--quiet", *words], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode != 0:
            sys.stdout.write(f"apt-get {words[0]} failed: {done.stderr.strip()[-500:]}\n")


if __name__ == "__main__":
    install()
