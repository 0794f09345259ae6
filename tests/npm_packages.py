"""npm packages that tests need, in pinned versions. `make test` installs them first; a test only looks for them.

`python -m tests.npm_packages` installs what is missing into a cache, and says so; with `format`, it then formats the
web pages. Without a package a test is skipped with a loud line; where `CI=true` it fails, so that a machine without
it does not pass for one that tested it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.system_programs import find

VERSIONS = {"axe-core": "4.14.0", "prettier": "3.10.1", "typescript": "7.0.2"}
CACHE = Path(tempfile.gettempdir()) / "stepkeep-test-npm"


def need_package(name: str) -> Path:
    """The folder of a package."""
    if (folder := _folder(name) / name).joinpath("package.json").exists():
        return folder
    said = (
        f"NOT TESTED: there is no npm package {name} {VERSIONS[name]} here. `make programs` installs it with npm, "
        "or set STEPKEEP_TEST_NODE_MODULES to a node_modules folder that has it."
    )
    if os.environ.get("CI") == "true":
        pytest.fail(said)
    pytest.skip(said)


def _folder(name: str) -> Path:
    return Path(os.environ.get("STEPKEEP_TEST_NODE_MODULES") or CACHE / f"{name}-{VERSIONS[name]}" / "node_modules")


def install() -> None:
    """Install the packages that are missing."""
    for name, version in VERSIONS.items():
        if (_folder(name) / name / "package.json").exists():
            continue
        if (npm := find("npm")) is None:
            sys.stdout.write(f"not installed, because there is no npm: {name}\n")
            continue
        sys.stdout.write(f"installing for the tests: {name} {version} (npm)\n")
        sys.stdout.flush()
        place = ["--prefix", str(_folder(name).parent)]
        command = [npm, "install", "--no-save", "--ignore-scripts", *place, f"{name}@{version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.stdout.write(f"npm install {name} failed: {done.stderr.strip()[-500:]}\n")


def format_pages() -> None:
    """Format the files of the web pages, where the formatter is there."""
    program = _folder("prettier") / "prettier" / "bin" / "prettier.cjs"
    if (node := find("node")) is not None and program.exists():
        files = [f"src/stepkeep/ui/**/*.{kind}" for kind in ("js", "css", "html")]
        command = [node, str(program), "--config", "tests/ui/prettier.json", "--log-level=warn", "--write", *files]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    install()
    if "format" in sys.argv[1:]:
        format_pages()
