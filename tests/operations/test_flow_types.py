"""What calls of flows return has the type that their handlers are annotated with, live and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

import stepkeep as sk
from stepkeep.kernel.errors import InvalidInput
from tests.operations.test_flows import run


class Size(Enum):
    SMALL = "s"


class Rate(msgspec.Struct):
    percent: Decimal


class Guest(pydantic.BaseModel):
    name: str
    id: UUID


@dataclass
class Booking:
    room: tuple[int, str]
    day: date
    size: Size
    guest: Guest


@sk.step("types.book")
def book(number: int, day: date) -> Booking:
    return Booking((number, "b"), day, Size.SMALL, Guest(name="Ada", id=UUID(int=number)))


@sk.step("types.rate")
async def rate(ctx: sk.Context, percent: Decimal) -> Rate:
    return Rate(percent)


@sk.step("types.lies")
def lies() -> int:
    return "many"  # type: ignore[return-value]


@sk.step("types.unknown")
def unknown() -> sk.Engine | None:
    return None


@sk.flow("types.child")
async def child(ctx: sk.FlowContext, number: int) -> Booking:
    return await ctx.step(book, number, date(2026, 3, 1))


@sk.flow("types.parent")
async def parent(ctx: sk.FlowContext) -> list[Booking]:
    assert await ctx.step(rate, Decimal("1.5")) == Rate(Decimal("1.5"))
    assert (await ctx.map(rate, [Decimal(2)]))[0].percent == 2
    assert await ctx.once("pair", lambda: (1, 2)) == [1, 2]

    def typed_pair() -> tuple[int, Size]:
        return (1, Size.SMALL)

    assert await ctx.once("typed", typed_pair) == (1, Size.SMALL)
    assert await ctx.step(unknown) is None
    assert await ctx.step("types.rate", Decimal(3)) == {"percent": "3"}
    asked: Any = ctx.child(child, {"number": 7})
    return [await ctx.step(book, 1, date(2026, 3, 2)), await asked]


@pytest.mark.parametrize("kept", [0, 1000])
def test_results_are_values_of_their_types(database_url: str, kept: int) -> None:
    from stepkeep.worker.flows import keeper

    default = keeper.FlowKeeper.__init__.__defaults__
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        with sk.Engine(database_url) as engine:
            engine.publish(child)
        result = run(database_url, parent)
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = default
    assert result.state == "succeeded", result.error
    assert result.output == [book(1, date(2026, 3, 2)), book(7, date(2026, 3, 1))]
    assert "2026-03-02" in str(result)


def test_a_result_that_does_not_fit_is_a_clear_error_at_its_call(database_url: str) -> None:
    @sk.flow("types.deceived")
    async def deceived(ctx: sk.FlowContext) -> str:
        try:
            await ctx.step(lies)
        except InvalidInput as problem:
            return str(problem)
        return ""

    assert run(database_url, deceived).output == "the result of types.lies does not fit: Expected `int`, got `str`"


def test_an_output_that_does_not_fit_the_flow_says_that_the_run_succeeded(database_url: str) -> None:
    @sk.flow("types.lying")
    async def lying(ctx: sk.FlowContext) -> int:
        return "many"  # type: ignore[return-value]

    with sk.Engine(database_url) as engine:
        with pytest.raises(InvalidInput, match=r"run \S+ succeeded, but its output does not fit: Expected `int`"):
            engine.run(lying)
        assert engine.runs().runs[0].state == "succeeded"


def test_a_message_is_made_into_the_type_that_a_flow_names(database_url: str) -> None:
    @sk.flow("types.paid")
    async def paid(ctx: sk.FlowContext) -> Decimal:
        one = await ctx.wait_for("rate", as_=Rate)
        more = await ctx.wait_for("rate", as_=list[Rate], count=2)
        return one.percent + sum(each.percent for each in more)

    with sk.Engine(database_url) as engine:
        started = engine.start(paid)
        for percent in ("1.5", "2", "3"):
            engine.send(started.run_id, "rate", {"percent": percent})
        assert engine.work_on(started.run_id).output == "6.5"
