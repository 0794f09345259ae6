"""SQL of transactional steps is written once, for both databases and for handlers of both kinds."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import stepkeep as sk
from stepkeep.testing.workbench import Workbench
from stepkeep.worker.statements import for_sqlite, placeholders


class Kind(enum.Enum):
    SALE = "sale"


@pytest.mark.parametrize(
    ("sql", "translated", "highest"),
    [
        ("select $1, $2, $1", "select ?1, ?2, ?1", 2),
        ("select '$1', $1", "select '$1', ?1", 1),
        ("select 'it''s $2', $1", "select 'it''s $2', ?1", 1),
        ('select "$3", `$4`, $1', 'select "$3", `$4`, ?1', 1),
        ("select $1 -- $2\n, $2", "select ?1 -- $2\n, ?2", 2),
        ("select /* $7 '*/ $1", "select /* $7 '*/ ?1", 1),
        ("select $10", "select ?10", 10),
        ("select '", "select '", 0),
        ("select /* $1", "select /* $1", 0),
    ],
)
def test_placeholders_are_found_outside_quotes_and_comments(sql: str, translated: str, highest: int) -> None:
    assert (for_sqlite(sql), placeholders(sql)) == (translated, highest)


def test_an_element_of_an_array_is_a_placeholder_on_postgresql() -> None:
    assert placeholders("select (array[1, 2])[$1]", brackets_quote=False) == 1


def book_flow(registry: sk.Registry, *, is_async: bool) -> sk.Workflow:
    values = ["a-1", 3, Decimal("9.90"), datetime.date(2026, 3, 1), UUID(int=7), Kind.SALE, {"x": [1]}]
    insert = "insert into ledger (sku, n, kind, facts) values ($1, $2, $3, $4) -- $9"

    if is_async:

        @sk.step("book", transactional=True, registry=registry)
        async def book(ctx: sk.Context, fails: bool = False) -> dict[str, Any]:
            await ctx.execute("create table if not exists ledger (sku text, n integer, kind text, facts text)")
            changed = await ctx.execute(insert, values[0], values[1], values[5], values[6])
            first = await ctx.fetch_one("select sku, n from ledger where sku = $1", values[0])
            all_of_them = await ctx.fetch("select kind, facts from ledger where n = $1", values[1])
            none = await ctx.fetch_one("select sku from ledger where n = $1", 99)
            assert ctx.connection is not None
            if fails:
                raise sk.StepError("no", category="validation")
            return {"changed": changed, "first": first, "all": all_of_them, "none": none}
    else:

        @sk.step("book", transactional=True, registry=registry)
        def book(ctx: sk.Context, fails: bool = False) -> dict[str, Any]:
            ctx.execute("create table if not exists ledger (sku text, n integer, kind text, facts text)")
            changed = ctx.execute(insert, values[0], values[1], values[5], values[6])
            first = ctx.fetch_one("select sku, n from ledger where sku = $1", values[0])
            all_of_them = ctx.fetch("select kind, facts from ledger where n = $1", values[1])
            none = ctx.fetch_one("select sku from ledger where n = $1", 99)
            if fails:
                raise sk.StepError("no", category="validation")
            return {"changed": changed, "first": first, "all": all_of_them, "none": none}

    flow = sk.Workflow("books", registry=registry)
    flow.step("only", book)
    return flow


BOOKED = {
    "changed": 1,
    "first": {"sku": "a-1", "n": 3},
    "all": [{"kind": "sale", "facts": '{"x":[1]}'}],
    "none": None,
}


@pytest.mark.parametrize("is_async", [False, True])
def test_the_same_step_runs_on_both_databases(database_url: str, is_async: bool) -> None:
    registry = sk.Registry()
    flow = book_flow(registry, is_async=is_async)
    with sk.open(database_url, registry=registry) as engine:
        assert engine.run(flow, {"fails": True}).state == "failed"
        assert engine.run(flow, check=True).output == BOOKED, "what the failed step wrote is gone"


@pytest.mark.parametrize("is_async", [False, True])
def test_the_same_step_runs_in_the_workbench(is_async: bool) -> None:
    registry = sk.Registry()
    flow = book_flow(registry, is_async=is_async)
    with Workbench(handlers=registry) as workbench:
        run = workbench.run(flow)
        assert run.output == BOOKED


@pytest.mark.parametrize(
    ("sql", "args", "said"),
    [
        ("select $1, $2", (1,), "placeholders up to \\$2, and 1 values"),
        ("select 1", (1,), "placeholders up to \\$0, and 1 values"),
        (5, (), "a statement is a text"),
    ],
)
def test_a_wrong_statement_is_refused_in_words(database_url: str, sql: Any, args: Any, said: str) -> None:
    registry = sk.Registry()

    @sk.step("wrong", transactional=True, registry=registry)
    def wrong(ctx: sk.Context) -> None:
        ctx.execute(sql, *args)

    flow = sk.Workflow("wrong", registry=registry)
    flow.step("only", wrong)
    with sk.open(database_url, registry=registry) as engine, pytest.raises(sk.RunNotSucceeded, match=said):
        engine.run(flow, check=True)


def test_values_of_all_kinds_are_stored_on_sqlite(tmp_path: object) -> None:
    registry = sk.Registry()

    @sk.step("keep", transactional=True, registry=registry)
    def keep(ctx: sk.Context) -> Any:
        values = (datetime.date(2026, 3, 1), Decimal("1.50"), UUID(int=7), True, None, b"x", [1])
        row = ctx.fetch_one("select $1 as a, $2 as b, $3 as c, $4 as d, $5 as e, $6 as f, $7 as g", *values)
        row["f"] = row["f"].decode()
        return list(row.values())

    @sk.step("refuse", transactional=True, registry=registry)
    def refuse(ctx: sk.Context) -> None:
        ctx.execute("select $1", object())

    flow = sk.Workflow("keeps", registry=registry)
    flow.step("only", keep)
    odd = sk.Workflow("odd", registry=registry)
    odd.step("only", refuse)
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        kept = ["2026-03-01", "1.50", "00000000-0000-0000-0000-000000000007", 1, None, "x", "[1]"]
        assert engine.run(flow, check=True).output == kept
        assert "stores no value of type object" in str(engine.run(odd).error)


def test_a_step_that_is_not_transactional_is_told_how_to_be(tmp_path: object) -> None:
    registry = sk.Registry()

    @sk.step("plain", registry=registry)
    def plain(ctx: sk.Context) -> None:
        ctx.execute("select 1")

    flow = sk.Workflow("plain", registry=registry)
    flow.step("only", plain)
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        assert "@stepkeep.step(transactional=True)" in str(engine.run(flow).error)


@pytest.mark.postgres
def test_an_error_of_the_driver_is_not_blamed_on_the_event_loop(
    postgres_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = sk.Registry()

    @sk.step("wrong", transactional=True, registry=registry)
    def wrong(ctx: sk.Context) -> None:
        ctx.execute("select nothing from nowhere")

    flow = sk.Workflow("wrong", registry=registry)
    flow.step("only", wrong, retry=sk.Retry(max_attempts=1))
    with sk.open(postgres_dsn, registry=registry) as engine:
        assert "nowhere" in str(engine.run(flow).error)
    assert "no running event loop" not in caplog.text


def test_a_test_shares_what_a_lifespan_would() -> None:
    registry = sk.Registry()

    @sk.step("asks", registry=registry)
    def asks(ctx: sk.Context) -> int:
        return int(ctx.shared["answer"])

    flow = sk.Workflow("asks", registry=registry)
    flow.step("only", asks, retry=sk.Retry(max_attempts=1))
    with Workbench(handlers=registry) as workbench:
        assert "workbench.share" in str(workbench.run(flow).error)
        workbench.share(answer=42)
        assert workbench.run(flow).output == 42
