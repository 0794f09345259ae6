"""Damage to rows that no store would write, by the database's own driver and past what its schema refuses."""

from __future__ import annotations

from pathlib import Path

import apsw
import asyncpg

GUARDED = (
    *("definitions", "runs", "steps", "attempts", "journal", "messages", "run_details", "outbox"),
    *("people_journal", "memberships", "delegations", "api_keys", "decisions", "gates", "audit"),
)


async def damage(url: str, statement: str) -> None:
    """Change rows as a defect of a disk, another program or a careless hand would."""
    if url.startswith("sqlite:"):
        _damage_file(Path(url.removeprefix("sqlite:///")), statement)
        return
    connection = await asyncpg.connect(url)
    try:
        for table, constraint in (
            ("runs", "run_is_sound"),
            ("steps", "step_is_sound"),
            ("attempts", "attempt_is_sound"),
            ("principals", "principal_kind"),
        ):
            await connection.execute(f"alter table {table} drop constraint if exists {constraint}")
        for table in GUARDED:
            await connection.execute(f"alter table {table} disable trigger user")
        await connection.execute(statement)
        for table in GUARDED:
            await connection.execute(f"alter table {table} enable trigger user")
    finally:
        await connection.close()


def _damage_file(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    try:
        triggers = connection.execute("select name, sql from sqlite_schema where type = 'trigger'").fetchall()
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute("begin immediate")
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("commit")
    finally:
        connection.close()
