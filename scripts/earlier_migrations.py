"""Packs the 42 migrations before `0001_initial`, which the tests keep as files, into the archive of the product.

They never change, so it need not run again. `tests/store/upgrades/test_one_schema.py` compares both.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ROOT / "tests" / "store" / "upgrades" / "migrations"
ARCHIVE = ROOT / "src" / "stepkeep" / "store" / "earlier_migrations.zip"
LONG_AGO = (1980, 1, 1, 0, 0, 0)


def pack() -> None:
    with zipfile.ZipFile(ARCHIVE, "w") as archive:
        for file in sorted(FILES.rglob("*.sql")):
            entry = zipfile.ZipInfo(file.relative_to(FILES).as_posix(), LONG_AGO)
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    pack()
