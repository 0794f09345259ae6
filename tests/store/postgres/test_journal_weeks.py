"""The parts of the journal: made ahead of time, found without looking at the others, dropped when they are empty."""

import asyncio
from pathlib import Path

import asyncpg
import msgspec
import pytest
from tests.store.postgres.conftest import session, until_somebody_waits
from tests.store.raw import Raw, RefusedBySchema
from tests.store.values import TENANT, a_run, an_entry, new_run, run_id, save

from stepkeep.cli.main import main
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.pipeline import maintenance
from stepkeep.operations.pipeline.maintenance import maintain_with_patience
from stepkeep.store.change import NewRun
from stepkeep.store.postgres.load import SQL
from stepkeep.store.postgres.namespace import Namespace
from stepkeep.store.protocol import Store
from stepkeep.store.records import Maintenance

pytestmark = pytest.mark.postgres

WEEKS = "select relname from pg_class where relname ~ '^journal_[0-9]{8}$' and relkind = 'r' order by 1"
DAY_OF_A_WEEK = "select extract(isodow from to_date(substring(relname from 9), 'YYYYMMDD')) from pg_class"
MOVED_CLOCK = (
    "create or replace function stepkeep.stepkeep_now() returns bigint language sql volatile return {}::bigint"
)
WEEK = 7 * 86_400 * 1_000_000


def run_at(micros: int, number: int = 1) -> str:
    """A run id as it is given at a moment."""
    stamp = f"{micros // 1000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7000-8000-{number:012d}"


def born_at(micros: int, state: RunState = RunState.RUNNING) -> NewRun:
    ended = {"ended_at": micros} if state is RunState.SUCCEEDED else {}
    run = run_at(micros)
    entry = an_entry(run, 1)
    born = new_run(1, run=a_run(1, state, id=run, head=entry.hash, **ended), entries=(entry,))
    details = msgspec.structs.replace(born.details, run_id=run)
    return NewRun(run=born.run, details=details, steps=(), entries=(entry,))


async def where_is(raw: Raw, run: str) -> str:
    [(part,)] = await raw.execute(f"select tableoid::regclass::text from journal where run_id = '{run}'")
    return str(part)


async def weeks(raw: Raw) -> list[str]:
    return [name for (name,) in await raw.execute(WEEKS)]


async def test_this_week_and_the_next_ones_are_there_and_begin_on_mondays(store: Store, raw: Raw) -> None:
    assert len(await weeks(raw)) == 3
    days = await raw.execute(f"{DAY_OF_A_WEEK} where relname ~ '^journal_[0-9]{{8}}$' and relkind = 'r'")
    assert {int(day) for (day,) in days} == {1}


async def test_an_entry_goes_into_the_week_in_which_its_run_started(store: Store, raw: Raw) -> None:
    now = await store.now()
    first, second, third = await weeks(raw)
    for ahead, week in enumerate((first, second, third)):
        await save(store, born_at(now + ahead * WEEK))
        assert await where_is(raw, run_at(now + ahead * WEEK)) == week


async def test_what_fits_no_week_is_kept_all_the_same(store: Store, raw: Raw) -> None:
    await save(store, new_run(1))
    assert await where_is(raw, run_id(1)) == "journal_default"
    assert [entry.seq for entry in await store.read_journal(TENANT, run_id(1))] == [1]


async def test_weeks_are_added_as_time_goes_by_and_only_those_that_are_missing(store: Store, raw: Raw) -> None:
    before, now = await weeks(raw), await store.now()
    await save(store, born_at(now))
    await store.maintain()
    assert await weeks(raw) == before
    await raw.execute(MOVED_CLOCK.format(now + WEEK))
    await store.maintain()
    assert (await weeks(raw))[:3] == before
    assert len(await weeks(raw)) == 4


async def test_a_week_that_has_rows_in_the_default_partition_is_left_there(store: Store, raw: Raw) -> None:
    before, now = await weeks(raw), await store.now()
    await save(store, born_at(now), born_at(now + WEEK), born_at(now + 3 * WEEK))
    await raw.execute(MOVED_CLOCK.format(now + WEEK))
    await store.maintain()
    assert await weeks(raw) == before
    await raw.execute(MOVED_CLOCK.format(now + 2 * WEEK))
    await store.maintain()
    assert len(await weeks(raw)) == 4, "the week after it is made"
    assert await where_is(raw, run_at(now + 3 * WEEK)) == "journal_default"


async def test_every_part_refuses_changes_and_early_deletes(store: Store, raw: Raw) -> None:
    now = await store.now()
    await save(store, born_at(now), new_run(1))
    for part in ("journal", "journal_default", (await weeks(raw))[0]):
        for statement in (f"update {part} set at = 0", f"delete from {part}"):
            with pytest.raises(RefusedBySchema):
                await raw.execute(statement)


async def test_an_empty_week_is_dropped_once_it_has_passed_and_was_vacuumed(store: Store, raw: Raw) -> None:
    now, (first, *_) = await store.now(), await weeks(raw)
    await save(store, born_at(now, RunState.SUCCEEDED))
    await raw.execute(MOVED_CLOCK.format(now + 3 * WEEK))
    await store.maintain()
    assert first in await weeks(raw), "it has a row"
    await raw.execute("delete from journal")
    await raw.execute(f"vacuum {first}")
    await store.maintain()
    assert first not in await weeks(raw)
    await save(store, born_at(now + 1000))
    assert await where_is(raw, run_at(now + 1000)) == "journal_default"


async def test_an_empty_week_that_has_not_passed_stays(store: Store, raw: Raw) -> None:
    before = await weeks(raw)
    await raw.execute(f"vacuum {before[0]}")
    await store.maintain()
    assert await weeks(raw) == before


async def test_maintenance_waits_for_no_lock_that_stays_and_says_what_it_put_off(
    store: Store, url: str, raw: Raw
) -> None:
    before, now = await weeks(raw), await store.now()
    async with session(url) as somebody:
        await somebody.execute("begin; lock table journal_default in access share mode")
        await raw.execute(MOVED_CLOCK.format(now + 9 * WEEK))
        done = await store.maintain()
        said = dict(what.split(": ", 1) for what in done.put_off)
        assert set(said) == {"making weeks of the journal", "dropping empty weeks of the journal"}
        assert all("lock timeout" in why for why in said.values())
        assert await weeks(raw) == before
        await save(store, born_at(now + 9 * WEEK))
        await somebody.execute("rollback")
    assert await where_is(raw, run_at(now + 9 * WEEK)) == "journal_default"


async def test_a_journal_is_read_from_its_own_week_alone(store: Store, url: str) -> None:
    run = run_at(await store.now())
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set enable_seqscan = off")
        await connection.execute(f"prepare asked as {SQL.read_journal}")
        for mode in ("force_custom_plan", "force_generic_plan"):
            await connection.execute(f"set plan_cache_mode = {mode}")
            rows = await connection.fetch(f"explain (analyze, costs off) execute asked('acme', '{run}', 0, 10)")
            plan = "\n".join(row[0] for row in rows)
            used = [line for line in plan.splitlines() if "Scan using journal" in line and "never executed" not in line]
            assert len(used) == 1, plan
            assert "journal_default" not in used[0]
    finally:
        await connection.close()


async def test_maintenance_counts_what_it_made_and_dropped(store: Store, raw: Raw) -> None:
    now, before = await store.now(), await weeks(raw)
    assert await store.maintain() == Maintenance()
    await raw.execute(MOVED_CLOCK.format(now + 3 * WEEK))
    done, after = await store.maintain(), await weeks(raw)
    assert (done.weeks_made, done.put_off) == (3, ())
    assert done.weeks_dropped == len(set(before) - set(after))
    assert before[0] not in after


async def test_one_process_at_a_time_maintains_a_database(store: Store, url: str, raw: Raw) -> None:
    now = await store.now()
    await raw.execute(MOVED_CLOCK.format(now + WEEK))
    async with session(url) as somebody:
        await somebody.execute(f"begin; select pg_advisory_xact_lock({Namespace('stepkeep').lock})")
        done = await store.maintain()
        assert done.weeks_made == 0
        assert "another process" in done.put_off[0]
    assert (await store.maintain()).weeks_made == 1


async def test_a_patient_caller_tries_again_until_the_table_is_free(store: Store, url: str, raw: Raw) -> None:
    now = await store.now()
    await raw.execute(MOVED_CLOCK.format(now + WEEK))
    async with session(url) as somebody, session(url) as watching:
        await somebody.execute("begin; lock table journal_default in access share mode")
        patient = asyncio.create_task(maintain_with_patience(store))
        await until_somebody_waits(watching)
        await somebody.execute("rollback")
        done = await asyncio.wait_for(patient, 30)
    assert (done.weeks_made, done.put_off) == (1, ())


def test_the_command_makes_what_is_missing_and_says_so(
    url: str, runner: asyncio.Runner, raw: Raw, capsys: pytest.CaptureFixture[str]
) -> None:
    week = runner.run(weeks(raw))[-1]
    runner.run(raw.execute(f"drop table {week}"))
    assert main(["db", "maintain", "--db", url, "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["maintenance"] == {
        "weeks_made": 1,
        "weeks_dropped": 0,
        "weeks_denied": 0,
        "put_off": [],
    }
    assert week in runner.run(weeks(raw))
    assert main(["db", "maintain", "--db", url]) == 0
    assert "weeks of the journal: 0 made, 0 dropped" in capsys.readouterr().out


def test_the_command_ends_with_1_where_something_stays_in_use(
    url: str, runner: asyncio.Runner, raw: Raw, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "TRIES", 2)
    week = runner.run(weeks(raw))[-1]
    runner.run(raw.execute(f"drop table {week}"))
    rival = runner.run(asyncpg.connect(url))
    try:
        runner.run(rival.execute("begin; lock table journal_default in access share mode"))
        assert main(["db", "maintain", "--db", url]) == 1
    finally:
        runner.run(rival.close())
    assert "put off: making weeks of the journal" in capsys.readouterr().out
    assert week not in runner.run(weeks(raw))


def test_an_sqlite_file_needs_no_maintenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"sqlite:///{tmp_path}/app.db"
    assert main(["db", "migrate", "--db", where]) == 0
    assert main(["db", "maintain", "--db", where]) == 0
    assert "0 made, 0 dropped" in capsys.readouterr().out
