"""Opening a PostgreSQL database changes no schema: it refuses one that is not migrated and names the command."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from tests.reused_databases import CLEANER
from tests.store.postgres.conftest import session
from tests.store.test_upgrade import at_version

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.kernel.errors import SchemaMismatch
from stepkeep.store.connect import migrate
from stepkeep.testing import Workbench

pytestmark = pytest.mark.postgres

RELATIONS = "select count(*) from pg_class where relnamespace::regnamespace::text !~ '^(pg_|information_schema)'"
RUN_ID = "01890000-0000-7000-8000-000000000001"
FLOW = "workflow: hello\nsteps:\n  - {name: sign-off, approval: {deadline: 24h}}\n"


@pytest.fixture
def with_password(empty_postgres_dsn: str) -> str:
    """The database by a URL that holds a password; the server asks for none."""
    return empty_postgres_dsn.replace("://postgres@", "://postgres:CANARY@")


async def relations(dsn: str) -> int:
    async with session(dsn) as connection:
        return int(await connection.fetchval(RELATIONS))


async def refusal(url: str) -> str:
    with pytest.raises(SchemaMismatch) as refused:
        async with sk.AsyncEngine(url, actor="a"):
            pytest.fail("it opened")
    return str(refused.value)


async def test_a_database_without_a_schema_is_refused_and_left_as_it_is(
    with_password: str, empty_postgres_dsn: str
) -> None:
    said = await refusal(with_password)
    assert "has no Stepkeep schema yet" in said
    assert "CANARY" not in said
    assert await relations(empty_postgres_dsn) == 0


async def test_the_command_that_a_refusal_names_can_be_typed_and_mends_it(empty_postgres_dsn: str) -> None:
    said = await refusal(empty_postgres_dsn)
    program, *words = shlex.split(said.rpartition("run: ")[2])
    assert program == "stepkeep"
    assert await asyncio.to_thread(main, words) == 0
    async with sk.AsyncEngine(empty_postgres_dsn, actor="a") as engine:
        assert (await engine.runs())["runs"] == []


async def test_a_database_that_lacks_one_migration_is_refused_by_its_name(empty_postgres_dsn: str) -> None:
    async with at_version(empty_postgres_dsn, 1):
        said = await refusal(empty_postgres_dsn)
    assert "lacks the migrations 0002_message_numbers" in said
    assert "0001_core" not in said


async def test_auto_migrate_migrates_and_later_openings_need_it_no_more(empty_postgres_dsn: str) -> None:
    async with sk.AsyncEngine(empty_postgres_dsn, actor="a", auto_migrate=True) as engine:
        assert (await engine.store.status()).pending == ()
    async with sk.AsyncEngine(empty_postgres_dsn, actor="a") as engine:
        assert (await engine.runs())["runs"] == []


def test_a_program_without_a_loop_is_refused_alike(empty_postgres_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="stepkeep db migrate"), sk.open(empty_postgres_dsn):
        pytest.fail("it opened")
    with sk.open(empty_postgres_dsn, auto_migrate=True) as engine:
        assert engine.runs()["runs"] == []


async def test_migrating_by_a_function_closes_its_connections(empty_postgres_dsn: str) -> None:
    assert (await migrate(empty_postgres_dsn)).pending == ()
    others = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        f" and pid <> pg_backend_pid() and application_name <> '{CLEANER}'"
    )
    async with session(empty_postgres_dsn) as connection, asyncio.timeout(10):
        while await connection.fetchval(others):  # noqa: ASYNC110 - a session ends a moment after its connection
            await asyncio.sleep(0.01)


COMMANDS = (
    ("runs",),
    ("show", RUN_ID),
    ("run", "flow.yaml"),
    ("start", "flow.yaml"),
    ("worker",),
    ("workers",),
    ("approve", RUN_ID),
    ("cancel", RUN_ID),
    ("send", RUN_ID, "event"),
    ("rerun", RUN_ID),
    ("certify", RUN_ID),
    ("prune", "--older-than", "1d", "--no-archive"),
    ("log", "export", RUN_ID, "--output", "log.jsonl"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]).replace(RUN_ID, ""))
def test_every_command_refuses_a_database_that_is_not_migrated(
    words: tuple[str, ...],
    with_password: str,
    empty_postgres_dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    assert main([*words, "--db", with_password, "--json"]) == 1
    said = capsys.readouterr()
    told = msgspec.json.decode(said.out)["error"]
    assert told["code"] == "schema_mismatch", told
    assert "stepkeep db migrate --db" in told["message"]
    assert "CANARY" not in said.out + said.err
    assert asyncio.run(relations(empty_postgres_dsn)) == 0


async def test_the_page_about_databases_names_the_server_of_the_tests_and_the_lowest_one(
    empty_postgres_dsn: str,
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "databases.md").read_text("utf-8")
    [lowest] = re.findall(r"PostgreSQL (\d+) or newer", page)
    [suite] = re.findall(r"whole test suite runs on PostgreSQL (\d+)", page)
    async with session(empty_postgres_dsn) as connection:
        major = int(await connection.fetchval("show server_version_num")) // 10_000
    assert major in (int(lowest), int(suite)), f"the page does not name PostgreSQL {major}"


def test_a_workbench_works_on_a_postgresql_database_that_is_migrated(postgres_dsn: str) -> None:
    with Workbench(postgres_dsn) as bench:
        run = bench.run(bench.load(FLOW))
        run.assert_waits("sign-off")
