"""A definition is run as it was published, or not at all: the database guards it, and readers check its digest."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.conformance.report import Code
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Command, Definition, StepDefinition, digest_of
from stepkeep.kernel.errors import Conflict, DefinitionChanged
from stepkeep.kernel.plan import queue_specs
from stepkeep.worker.executors.command import CommandPolicy
from tests.store.raw import PostgresRaw, Raw, RefusedBySchema, SqliteRaw

GOOD, EVIL = "touch-good", "touch-evil"


def program(folder: Path, name: str = "publish", version: int = 1) -> Definition:
    """A workflow whose only step makes a file called GOOD in the folder."""
    code = f"import pathlib; pathlib.Path({str(folder)!r}, {GOOD!r}).touch()"
    step = StepDefinition(name="make", order=0, executor=Command(argv=(sys.executable, "-c", code)))
    return Definition(name=name, version=version, steps=(step,))


def past_the_store(url: str) -> Raw:
    return SqliteRaw(url) if url.startswith("sqlite") else PostgresRaw(url)


async def test_a_document_from_before_a_field_was_added_is_the_same_definition(
    database_url: str, tmp_path: Path
) -> None:
    """Upgrading the engine must not force a new version on definitions that still say the same."""
    definition = program(tmp_path)
    old = msgspec.to_builtins(definition)
    for step in old["steps"]:
        del step["description"]
    document = msgspec.json.encode(old, order="sorted")

    async with AsyncEngine(database_url, auto_migrate=True) as engine:
        asked = (definition.name, definition.version, "native", digest_of(document), document)
        await engine.store.publish("default", *asked, queue_specs(definition), "test")
        assert (await engine.publish(definition)).digest == digest_of(document)
        with pytest.raises(Conflict, match="other content"):
            await engine.publish(replace(definition, timeout=1_000_000))


async def without_guard(raw: Raw, statement: str) -> None:
    """Do what the guard refuses, as an administrator could."""
    if isinstance(raw, SqliteRaw):
        await raw.execute("drop trigger definition_never_changes")
        await raw.execute("drop trigger definition_is_never_deleted")
    else:
        await raw.execute("drop trigger definition_never_changes on definitions")
    await raw.execute(statement)


def another_program(raw: Raw) -> str:
    if isinstance(raw, SqliteRaw):
        changed = f"cast(replace(cast(document as text), '{GOOD}', '{EVIL}') as blob)"
    else:
        changed = f"convert_to(replace(convert_from(document, 'UTF8'), '{GOOD}', '{EVIL}'), 'UTF8')"
    return f"update definitions set document = {changed}"


def anothers_document(raw: Raw) -> str:
    other = "(select {} from definitions as other where other.id <> definitions.id)"
    return (
        f"update definitions set document = {other.format('document')}, digest = {other.format('digest')} where id = 1"
    )


async def start(url: str, definition: Definition) -> str:
    async with AsyncEngine(url, actor="tester") as engine:
        return (await engine.start(definition)).run_id


async def work_until_refused(engine: AsyncEngine, caplog: pytest.LogCaptureFixture) -> None:
    """Let a worker look at the ready step until it has said why it does not claim it."""

    async def is_refused() -> bool:
        return "cannot be claimed" in caplog.text

    worker = engine.worker(concurrency=2, commands=CommandPolicy(tenants=("default",)))
    await asyncio.wait_for(worker.run_until(is_refused), 30)


async def test_the_database_refuses_any_change_of_a_published_definition(database_url: str, tmp_path: Path) -> None:
    await start(database_url, program(tmp_path))
    raw = past_the_store(database_url)
    before = await raw.execute("select * from definitions")
    for statement in (another_program(raw), "delete from definitions", "update definitions set version = 2"):
        with pytest.raises(RefusedBySchema, match="a published definition never changes"):
            await raw.execute(statement)
    assert await raw.execute("select * from definitions") == before


@pytest.mark.parametrize("change", [another_program, anothers_document])
async def test_a_definition_that_was_changed_behind_the_guard_is_not_run_and_not_certified(
    database_url: str, tmp_path: Path, change: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = await start(database_url, program(tmp_path))
    await start(database_url, program(tmp_path / "other", "other", 7))
    raw = past_the_store(database_url)
    await without_guard(raw, change(raw))
    with caplog.at_level(logging.ERROR):
        async with AsyncEngine(database_url, actor="tester") as engine:
            await work_until_refused(engine, caplog)
            with pytest.raises(DefinitionChanged, match=r"version 1 of publish \(definition 1\)"):
                await engine.cancel(run_id)
            with pytest.raises(DefinitionChanged, match="version 1 of publish"):
                await engine.start("publish")
            with pytest.raises(DefinitionChanged, match="version 1 of publish"):
                await engine.show(run_id)
    async with AsyncEngine(database_url, actor="tester") as engine:
        certificate = await engine.certify(run_id)
    assert not certificate.ok
    assert {finding.code for finding in certificate.canonical} == {"definition"}, "it cannot begin with it"
    assert certificate.definition is not None
    assert [finding.code for finding in certificate.definition.findings] == [Code.DEFINITION]
    assert "DOES NOT CONFORM" in certificate.page()
    assert list(tmp_path.glob("touch-*")) == []
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["certify", run_id, "--db", database_url]) == 1
    assert "DOES NOT HAVE the digest" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["start", "publish", "--db", database_url]) == 1
    assert "not run" in capsys.readouterr().err


async def test_an_engine_that_has_read_the_definition_before_does_not_certify_it_from_memory(
    database_url: str, tmp_path: Path
) -> None:
    async with AsyncEngine(database_url, actor="tester") as engine:
        run_id = (await engine.start(program(tmp_path))).run_id
        before = await engine.certify(run_id)
        assert before.ok
        assert before.definition is not None
        assert f"has the digest `{before.definition.digest}`" in before.page()
        raw = past_the_store(database_url)
        await without_guard(raw, another_program(raw))
        assert not (await engine.certify(run_id)).ok


async def test_a_definition_that_is_gone_is_named(database_url: str, tmp_path: Path) -> None:
    run_id = await start(database_url, program(tmp_path))
    raw = past_the_store(database_url)
    await without_guard(raw, "delete from definitions")
    async with AsyncEngine(database_url, actor="tester") as engine:
        with pytest.raises(DefinitionChanged, match="is gone from the database"):
            await engine.show(run_id)
        with pytest.raises(DefinitionChanged, match="is gone from the database"):
            await engine.certify(run_id)


def test_an_engine_for_trying_things_publishes_a_changed_workflow_under_the_next_version(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def cell(deadline: str) -> sk.Workflow:
        made = sk.Workflow("cell", version=1)
        made.approval("look", deadline=deadline)
        return made

    with sk.open(database_url, auto_migrate=True) as engine:
        engine.publish(cell("1h"))
        with pytest.raises(sk.Conflict, match=r"in Python `stepkeep.open\(dev=True\)`"):
            engine.publish(cell("2h"))
    with sk.open(database_url, dev=True) as engine:
        assert engine.publish(cell("1h")).definition.version == 1
        assert [engine.publish(cell("2h")).definition.version for _ in range(2)] == [2, 2]
        run = engine.start(cell("3h"))
        assert engine.show(run.run_id)["run"]["version"] == 3
    assert "the workflow has changed: it runs as version 3 of cell" in caplog.text
