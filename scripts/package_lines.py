"""Print lines of Python by package, at the commit `BEFORE` and now. It only reads, in a clone with its history."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

BEFORE = "04d22b6"
PRODUCT, LABORATORY = "src/stepkeep", "lab/src/stepkeep_lab"
OLD_NAMES = {"rehearsal": "simulate"}
MOVED = frozenset({"simulation", "storecheck", "torture", "bench", "modelcheck"})
"""Packages of the product that are now the laboratory's."""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def lines_at(revision: str) -> Counter[tuple[str, str]]:
    """Lines of Python by (distribution, package); modules beside the packages count as one package."""
    found: Counter[tuple[str, str]] = Counter()
    counted = git("grep", "-I", "-c", "", revision, "--", f"{PRODUCT}/**.py", f"{LABORATORY}/**.py")
    for line in counted.splitlines():
        _, path, count = line.split(":")
        root = LABORATORY if path.startswith(LABORATORY) else PRODUCT
        inside = PurePosixPath(path).relative_to(root).parts
        package = inside[0] if len(inside) > 1 else "modules"
        distribution = "stepkeep_lab" if root == LABORATORY or package in MOVED else "stepkeep"
        found[distribution, OLD_NAMES.get(package, package)] += int(count)
    return found


def table() -> Iterator[str]:
    before, now = lines_at(BEFORE), lines_at("HEAD")
    yield f"| package | lines at `{BEFORE}` | lines now |"
    yield "|---|---:|---:|"
    for distribution in ("stepkeep", "stepkeep_lab"):
        for package in sorted({name for owner, name in (*before, *now) if owner == distribution}):
            key = (distribution, package)
            yield f"| `{distribution}/{package}` | {before[key]:,} | {now[key]:,} |"
        sums = [sum(count for (owner, _), count in lines.items() if owner == distribution) for lines in (before, now)]
        yield f"| **{distribution}** | **{sums[0]:,}** | **{sums[1]:,}** |"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in table()))
