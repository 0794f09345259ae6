"""Plans: made once per connection, perhaps on empty tables, and right forever after."""

import re
from collections.abc import Iterator

import asyncpg
import pytest

from stepkeep.store.postgres.connections import ENGINE
from stepkeep.store.postgres.load import SQL
from stepkeep.store.protocol import Store
from stepkeep_lab.postgres import PostgresServer

pytestmark = pytest.mark.postgres

HOT = (
    "lock_runs",
    "load_steps",
    "load_all_steps",
    "load_outputs",
    "propose_steps",
    "find_claimable",
    "load_claimable",
    "write_hot",
    "write_hot_columns",
    "renew_leases",
    "consume_messages",
    "find_due",
)

WRITES = ("write_hot", "write_hot_columns")


@pytest.fixture(scope="module")
def unused_database(postgres_server: PostgresServer) -> Iterator[str]:
    """Tables that never had a row: the planner takes the pages of deleted ones into account."""
    with postgres_server.fresh_database() as dsn:
        yield dsn


@pytest.fixture
def url(unused_database: str) -> str:
    """These tests only ask for plans, so they share one database."""
    return unused_database


async def plan_of(url: str, statement: str, settings: dict[str, str], how: str = "") -> str:
    connection = await asyncpg.connect(url, server_settings=settings)
    try:
        await connection.execute(f"prepare asked as {statement}")
        count = max(int(number) for number in re.findall(r"\$(\d+)", statement))
        rows = await connection.fetch(f"explain ({how}costs off) execute asked({', '.join(['null'] * count)})")
        return "\n".join(row[0] for row in rows)
    finally:
        await connection.close()


@pytest.mark.parametrize("name", HOT)
async def test_what_every_change_does_never_scans_a_table(store: Store, url: str, name: str) -> None:
    plan = await plan_of(url, getattr(SQL, name), ENGINE)
    assert "Seq Scan" not in plan
    assert "Hash Join" not in plan
    assert "Merge Join" not in plan


async def test_the_claim_walks_its_index_in_claim_order(store: Store, url: str) -> None:
    plan = await plan_of(url, SQL.propose_steps, ENGINE)
    assert "Index Scan using steps_claim on steps" in plan
    assert re.search(r"Index Cond: \(\(queue = asked.queue\) AND \(ready_at >= .*\) AND \(ready_at <= ", plan)
    # One sort, of the candidates of all queues together; none of a queue's whole backlog.
    assert plan.count("Sort Key") == 1


async def test_the_claimable_steps_of_a_run_are_found_by_an_index_of_their_own(store: Store, url: str) -> None:
    for name in ("find_claimable", "load_claimable"):
        plan = await plan_of(url, getattr(SQL, name), ENGINE)
        assert re.search(r"Index Scan using steps_ready on steps\n *Index Cond: \(run_id = \w+\.run_id\)", plan), name


async def test_steps_are_probed_by_their_whole_key_even_where_the_plan_was_made_on_empty_tables(
    store: Store, url: str
) -> None:
    whole_key = r"Index Cond: \(\(run_id = \w+\.run_id\) AND \(no = \w+\.no\) AND \(tenant = .*\.tenant\S*\)"
    for name in ("load_steps", "write_hot", "write_hot_columns", "load_outputs"):
        assert re.search(whole_key, await plan_of(url, getattr(SQL, name), ENGINE)), name


@pytest.mark.parametrize("name", WRITES)
async def test_runs_are_written_by_their_whole_key_and_never_by_their_tenant_alone(
    store: Store, url: str, name: str
) -> None:
    plan = await plan_of(url, getattr(SQL, name), ENGINE)
    assert re.search(r"Index Cond: \(\(tenant = .*\.tenant\S* AND \(id = \w+\.id\)\)", plan)


@pytest.mark.parametrize("name", [*WRITES, "insert_runs"])
async def test_what_numbers_stand_for_is_found_without_a_call(store: Store, url: str, name: str) -> None:
    """A function that the planner cannot put into the statement costs more than the rest of the row."""
    plan = await plan_of(url, getattr(SQL, name), ENGINE, "verbose, ")
    assert "stepkeep_part" not in plan
    assert "stepkeep_text" not in plan


@pytest.mark.parametrize("name", WRITES)
async def test_completions_do_not_walk_the_index_of_what_is_in_flight(store: Store, url: str, name: str) -> None:
    plan = await plan_of(url, getattr(SQL, name), ENGINE)
    assert "steps_due" not in plan
    assert "steps_claim" not in plan


async def test_what_is_due_is_found_by_the_indexes_of_timers(store: Store, url: str) -> None:
    plan = await plan_of(url, SQL.find_due, ENGINE)
    assert "using steps_due on steps" in plan
    assert "using runs_due on runs" in plan


async def test_hot_tables_have_no_index_that_every_step_would_pay_for(store: Store, url: str) -> None:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "select indexname from pg_indexes where tablename in ('runs', 'steps', 'attempts', 'journal')"
    )
    await connection.close()
    assert {row[0] for row in rows} == {
        "runs_pkey",
        "runs_due",
        "runs_live",
        "runs_troubled",
        "steps_pkey",
        "steps_await_resources",  # partial: a step without resources has no entry
        "steps_claim",
        "steps_due",
        "steps_hold",  # partial: a step that does not hold has no entry
        "steps_ready",
        "attempts_cost",  # partial: an attempt without a cost has no entry
        "attempts_pkey",
        "journal_pkey",
        "journal_xact",  # BRIN: a few bytes for each range of pages
    }


def test_no_parameter_makes_the_driver_look_types_up() -> None:
    """Only arrays of text need no look-up, which would cost every new connection a slow statement of its own."""
    for name, statement in vars(SQL).items():
        assert not re.search(r"\$\d+::(?!text\[)\w+\[\]", statement), name
