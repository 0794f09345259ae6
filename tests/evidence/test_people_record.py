"""The rows of people follow from their journal: a change by hand is found by certificates, packs and `db status`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.damage import damage
from tests.evidence.test_pack import rules, unzipped

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.evidence.verifier import Pack, verify

FILE = """
workflow: signed
timeout: 1h
steps:
  - {name: sign, approval: {roles: [finance], not: [requester]}}
"""
LATER = 9_000_000_000_000_000
ROW = "('default', 'forged', 'zoe', 'person', 'role', 'finance', 1, 'root', null, null, null, null)"
FORGERIES: dict[str, tuple[str, str]] = {
    "a back-dated membership": (f"insert into memberships values {ROW}", "does not tell of it"),
    "a deleted membership": ("delete from memberships where subject = 'zoe'", "its row is gone"),
    "a role that was never revoked": (
        "update memberships set revoked_at = null, revoked_by = null where subject = 'zoe'",
        "revoked_at",
    ),
    "an earlier date": ("update memberships set granted_at = 1 where subject = 'zoe'", "granted_at"),
    "a later end": (f"update memberships set valid_to = {LATER} where subject = 'zoe'", "valid_to"),
    "another role": ("update memberships set name = 'board' where subject = 'zoe'", "another name"),
    "a role of the group": ("update memberships set name = 'finance' where subject = 'clerks'", "of clerks"),
    "an enabled account": ("update principals set created_at = 1 where name = 'zoe'", "created_at"),
    "a service that is a person": ("update principals set kind = 'service' where name = 'zoe'", "kind"),
    "another scope of a key": ("update api_keys set scopes = '[\"decide\",\"vouch\"]' where owner = 'zoe'", "scopes"),
    "another secret of a key": (f"update api_keys set secret_hash = '{'0' * 64}' where owner = 'zoe'", "secret"),
    "a delegation to another": ("update delegations set delegate = 'zoe' where delegator = 'cyd'", "delegate"),
    "a changed entry": ("update people_journal set subject = 'zoe' where seq = 3", "does not fit"),
    "refused vouching": ("update tenants set vouching = 'refused'", "vouching"),
}


def staffed(engine: sk.Engine) -> None:
    """Zoe has the role, also by a group that she is in, and had another one; the others do other things."""
    engine.tenants.create("default")
    for name in ("zoe", "cyd", "bea"):
        engine.users.create(name)
    engine.users.grant("zoe", role="finance")
    engine.users.grant("zoe", role="audit")
    engine.users.revoke("zoe", role="audit")
    engine.users.grant("zoe", group="clerks")
    engine.users.grant("clerks", role="post", to_group=True)
    engine.users.delegate("cyd", "bea", open_ended=True)
    engine.users.delegate("cyd", "zoe", open_ended=True)
    engine.keys.create("zoe", scopes=["decide"])
    rotated = engine.keys.create("bea", scopes=["read"], expires_in="90d").key.id
    engine.keys.rotate(rotated, overlap="1h")
    engine.users.disable("bea")
    engine.users.enable("bea")


def approved(engine: sk.Engine, folder: Path) -> str:
    """A run that ann asked for and zoe approved."""
    (folder / "signed.yaml").write_text(FILE)
    run = engine.start(folder / "signed.yaml", by="ann").run_id
    engine.approve(run, by="zoe")
    return run


def found_by(capsys: pytest.CaptureFixture[str], url: str, *command: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main([*command, "--db", url])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("what", FORGERIES)
async def test_a_change_of_people_by_hand_is_found_everywhere(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    statement, said = FORGERIES[what]
    with sk.open(database_url) as engine:
        staffed(engine)
        run = approved(engine, tmp_path)
        assert engine.certify(run).ok
        assert engine.users.history().chain.differences == []
        assert verify(Pack(unzipped(engine.evidence(run)))).ok
        assert (await asyncio.to_thread(found_by, capsys, database_url, "db", "status"))[0] == 0
        await damage(database_url, statement)
        certificate = engine.certify(run)
        assert not certificate.ok
        assert certificate.people is not None
        assert any(said in finding.message for finding in certificate.people.findings), certificate.people.findings
        findings = rules(verify(Pack(unzipped(engine.evidence(run)))))
        assert "certificate_refuses" in findings
        chain = engine.users.history().chain
        assert chain["differences"] or not chain["is_intact"]
    status, told = await asyncio.to_thread(found_by, capsys, database_url, "db", "status")
    assert status == 1
    assert said in told
    assert "the record was changed by hand" in told
    status, told = await asyncio.to_thread(found_by, capsys, database_url, "users", "history")
    assert status == 1


async def test_a_row_of_a_person_who_did_nothing_is_no_matter_of_this_run(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        staffed(engine)
        run = approved(engine, tmp_path)
        await damage(database_url, f"insert into memberships values {ROW.replace('zoe', 'bea')}")
        assert engine.certify(run).ok
        assert len(engine.users.history().chain.differences) == 1


Change = Callable[[dict[str, Any]], object]


def changed(files: dict[str, bytes], name: str, change: Change) -> dict[str, bytes]:
    """The files with each line of one of them changed, and the manifest over them as it should be."""
    from tests.evidence.test_pack import redigest

    lines = [json.loads(line) for line in files[name].splitlines()]
    for line in lines:
        change(line)
    forged = {**files, name: b"".join(json.dumps(line).encode() + b"\n" for line in lines)}
    redigest(forged)
    return forged


def test_the_verifier_compares_the_people_of_a_pack_with_their_journal(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        staffed(engine)
        run = approved(engine, tmp_path)
        files = unzipped(engine.evidence(run))
    assert verify(Pack(files)).ok

    def forged(name: str, change: Change) -> list[str]:
        return rules(verify(Pack(changed(files, name, change))))

    earlier = {"granted_at": 1}
    assert "people_changed" in forged("people.jsonl", lambda one: one["memberships"][0].update(earlier))
    assert "people_changed" in forged("people.jsonl", lambda one: one["memberships"].pop())
    assert "people_changed" in forged("people.jsonl", lambda one: one["delegations"].clear())
    assert "people_changed" in forged("people.jsonl", lambda one: one.update(disabled=True))
    assert "people_missing" in forged("people.jsonl", lambda one: one.update(person="bea"))
    assert "people_journal_changed" in forged("people_journal.jsonl", lambda one: one.update(hash="00"))
    cut = {**files, "people_journal.jsonl": b"".join(files["people_journal.jsonl"].splitlines(keepends=True)[:-1])}
    assert "file_changed" in rules(verify(Pack(cut)))
    assert "people_journal_changed" in forged("people_journal.jsonl", lambda one: one.update(seq=one["seq"] + 1))
