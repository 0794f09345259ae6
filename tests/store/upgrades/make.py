"""Makes the databases of earlier programs: `python -m tests.store.upgrades.make COMMIT`, in the root of the repository.

It takes the program at that commit from git, lets it fill an SQLite file and a PostgreSQL database (`seed.py`) until it
is killed, and writes both, compressed, into `databases/`. A kept database is never made again, only added.
`pg_dump` must be as new as the server; `STEPKEEP_POSTGRES_BIN` names the programs of a server.
"""

from __future__ import annotations

import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.store.upgrades.stored import DATABASES, dump_of, file_of

from stepkeep_lab.postgres import PostgresServer

HERE = Path(__file__).parent


def make(commit: str) -> None:
    DATABASES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server, server.fresh_database(empty=True) as dsn:
        program = Path(folder) / "program"
        program.mkdir()
        archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(program)], input=archive.stdout, check=True)
        file = Path(folder) / "stepkeep.db"
        _seed(program / "src", f"sqlite:///{file}")
        with sqlite3.connect(file) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
            connection.execute("pragma journal_mode=delete")
            connection.execute("vacuum")
        file_of(commit).write_bytes(lzma.compress(file.read_bytes()))
        _seed(program / "src", dsn)
        pg_dump = shutil.which("pg_dump") or "pg_dump"
        dumped = subprocess.run(
            [pg_dump, "--no-owner", "--no-privileges", "--rows-per-insert=200", dsn], check=True, capture_output=True
        )
        # The lines for psql alone say nothing about the database.
        kept = [line for line in dumped.stdout.splitlines() if not line.startswith(b"\\")]
        dump_of(commit).write_bytes(lzma.compress(b"\n".join(kept)))


def _seed(program: Path, url: str) -> None:
    # The packages stay those of this interpreter; the program comes first.
    environment = {**os.environ, "PYTHONPATH": str(program)}
    done = subprocess.run([sys.executable, str(HERE / "seed.py"), url], env=environment)
    assert done.returncode == -9, f"the program ended with {done.returncode}"


if __name__ == "__main__":
    make(sys.argv[1])
