"""The audit log is a hash chain: a change by hand is found by `audit` and `db status`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.damage import damage
from tests.evidence.test_people_record import found_by

import stepkeep as sk
from stepkeep.engine import AsyncEngine

INSERT = "insert into audit (tenant, id, at, actor, operation, target, outcome) values"
FORGERIES = {
    "a changed actor": ("update audit set actor = 'bea' where seq = 2", "entry 2 is missing or was changed"),
    "a changed outcome": ("update audit set outcome = 'done', code = null where seq = 3", "entry 3"),
    "another time": ("update audit set at = at - 1 where seq = 3", "entry 3"),
    "a deleted entry": ("delete from audit where seq = 2", "entry 2"),
    "the last one deleted": ("delete from audit where seq = (select max(seq) from audit)", "is missing"),
    "all deleted": ("delete from audit", "entry 1"),
    "an entry beside the chain": (
        f"{INSERT} ('default', 'x', 9000000000000000, 'zoe', 'approve', '', 'done')",
        "1 entries are outside of its chain",
    ),
    "another head": ("update audit_heads set hash = anchor || substr(hash, 2) || '0'", "is missing or was changed"),
}


@pytest.fixture
def busy(database_url: str, tmp_path: Path) -> str:
    """A database with some entries, by a key."""
    with sk.open(database_url) as engine:
        engine.users.create("ann")
        key = engine.keys.create("ann", scopes=["read", "start"]).secret
    with sk.open(database_url, key=key) as engine:
        for _ in range(4):
            with pytest.raises(sk.NotAllowed):
                engine.users.create("bea")
    return database_url


@pytest.mark.parametrize("what", FORGERIES)
async def test_a_change_of_the_audit_log_by_hand_is_found(
    busy: str, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    statement, said = FORGERIES[what]
    for command in (("audit",), ("db", "status")):
        assert (await asyncio.to_thread(found_by, capsys, busy, *command))[0] == 0
    await damage(busy, statement)
    for command in (["audit"], ["db", "status"]):
        status, told = await asyncio.to_thread(found_by, capsys, busy, *command)
        assert (status, said in told) == (1, True), told


async def test_entries_of_an_earlier_version_stay_outside_and_are_no_finding(
    busy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "('default', 'old', 1, 'zoe', 'approve', '', 'done')"
    await damage(busy, f"{INSERT} {old}")
    assert (await asyncio.to_thread(found_by, capsys, busy, "db", "status"))[0] == 0


async def test_many_processes_write_one_chain(database_url: str) -> None:
    from tests.store.people import audited

    async with AsyncEngine(database_url) as one, AsyncEngine(database_url) as other:
        logs = [engine.access.audit_log for engine in (one, other)]
        rows = [(log, audited(f"e{place}", 0, "default")) for place, log in enumerate(logs * 30)]
        await asyncio.gather(*(log.write(row) for log, row in rows))
        page = await one.audit.list(limit=100)
        assert page["chain"] == {"checked": 60, "is_intact": True, "broken_at": None, "beside": 0}
