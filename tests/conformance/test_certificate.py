"""A certificate says what was judged and what was found; whatever was done to any of a run's logs shows in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conformance.logs import STORIES, failure, log_of, rollback
from tests.conformance.tellings import dialects, encoded, resealed_whole, toy_among_dialects, walks, whole
from tests.kernel.driver import World
from tests.suites import in_proof
from tests.workbench import chain, gate, task

from stepkeep import AsyncEngine
from stepkeep.conformance.certificate import Certificate, certify
from stepkeep.conformance.report import Code
from stepkeep.dialects import registry
from stepkeep.kernel.definition import Approval, Definition
from stepkeep.kernel.errors import NotFound
from stepkeep.operations.logs.log import canonical_machines

MACHINES = canonical_machines()
JUDGES = {judged.name: judged for judged in dialects()}


def certificate_of(world: World, **changed: list[bytes]) -> Certificate:
    tellings = {name: encoded(whole(world, judged)) for name, judged in JUDGES.items()}
    return certify(changed.pop("canonical", log_of(world)), tellings | changed, MACHINES, JUDGES)


@pytest.mark.parametrize("story", STORIES)
def test_every_story_conforms_in_every_dialect(story: str) -> None:
    world = STORIES[story]()
    one = certificate_of(world)
    assert one.ok, one.page()
    assert (one.run, one.state, one.head, one.entries) == ("r", world.run.state, world.run.head.hex(), world.run.seq)
    assert [view.dialect for view in one.dialects] == list(JUDGES)
    assert one.counts["steps"] == len(world.rows)


@pytest.mark.parametrize("count", [15, in_proof(60)])
def test_random_runs_conform_in_every_dialect(count: int) -> None:
    for world in walks(count, seed=99):
        one = certificate_of(world)
        assert one.ok, one.page()


def test_a_dialect_log_that_is_legal_but_tells_another_story_is_found() -> None:
    """Rewritten with care, each log is right by itself; only side by side do they differ."""
    one = certificate_of(failure(), toy=encoded(whole(STORIES["success"](), JUDGES["toy"])))
    (view,) = [view for view in one.dialects if not view.ok]
    assert view.dialect == "toy"
    assert {finding.code for finding in view.findings} == {Code.PROJECTION}
    lines = whole(failure(), JUDGES["toy"])
    shorter = [line for line in lines if line["to_state"] != "dropped"]
    one = certificate_of(failure(), toy=encoded(resealed_whole(shorter, canonical=False)))
    assert [finding.code for view in one.dialects for finding in view.findings] == [Code.PROJECTION]


def test_a_dialect_log_that_speaks_for_another_journal_head_is_found() -> None:
    lines = whole(failure(), JUDGES["toy"])
    lines[-1]["metadata"]["head"] = "0" * 64
    one = certificate_of(failure(), toy=encoded(resealed_whole(lines, canonical=False)))
    (finding,) = [finding for view in one.dialects for finding in view.findings]
    assert (finding.code, finding.line) == (Code.PROJECTION, len(lines))


def test_a_changed_canonical_log_is_found_and_the_page_says_so() -> None:
    log = log_of(rollback())
    log[3] = log[3].replace(b'"actor":"ann"', b'"actor":"eve"')
    one = certificate_of(rollback(), canonical=log)
    assert not one.ok
    assert one.canonical
    page = one.page()
    assert "DOES NOT CONFORM" in page
    assert str(one.canonical[0]) in page
    assert one.as_json()["verdict"] == "does not conform"


def test_logs_of_garbage_make_a_certificate_that_says_no() -> None:
    garbage = [b"{", b"null", b'{"metadata":{}}', b'{"metadata":[],"to_state":1}']
    one = certify(garbage, dict.fromkeys(JUDGES, garbage), MACHINES, JUDGES)
    assert not one.ok
    assert certify([], {}, MACHINES, {}).as_json()["ok"] is False


def test_the_json_shape_and_the_page_say_the_same() -> None:
    one = certificate_of(rollback())
    plain: dict[str, Any] = json.loads(json.dumps(one.as_json()))
    assert plain["verdict"] == "conforms"
    assert plain["head"] == one.head
    for view in plain["dialects"]:
        assert view["ok"] is True
        assert f"| {view['dialect']} | {view['state']} | {view['lines']:,} |" in one.page()


# -- from a real store -----------------------------------------------------------------------------------------------
@pytest.fixture
def toy() -> Iterator[None]:
    with toy_among_dialects():
        yield


@asynccontextmanager
async def on_an_engine(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, actor="tester") as engine:
        yield engine


SIGNED = Definition(
    name="signed",
    version=1,
    dialect="toy",
    steps=(task("pack"), gate("sign", 1, ["pack"], approval=Approval())),
)


@pytest.mark.usefixtures("toy")
async def test_a_real_run_is_certified_while_it_goes_on_and_after_its_end(database_url: str) -> None:
    async with on_an_engine(database_url) as engine:
        started = await engine.start(SIGNED)
        one = await engine.certify(started.run_id)
        assert one.ok, one.page()
        assert one.written_in == "toy"
        await engine.cancel(started.run_id, reason="enough")
        one = await engine.certify(started.run_id)
        assert one.ok, one.page()
        assert {view.dialect: view.state for view in one.dialects}["toy"] == "returned"
        assert {view.dialect for view in one.dialects if view.own} == {"toy"}
        assert [view.dialect for view in one.dialects] == [*registry.names()]
        with pytest.raises(NotFound):
            await engine.certify("nobody")


async def test_what_was_changed_in_the_database_does_not_conform(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keep.db"

    async def start(engine: AsyncEngine) -> str:
        return (await engine.start(chain("three", 3))).run_id

    async with on_an_engine(url) as engine:
        run_id = await start(engine)
    connection = apsw.Connection(f"{tmp_path}/keep.db")
    for (trigger,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'tester', 'nobody') AS BLOB)")
    connection.close()

    async with on_an_engine(url) as engine:
        assert {finding.code for finding in (await engine.certify(run_id)).canonical} == {Code.HASH}
