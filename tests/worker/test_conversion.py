"""Handlers receive values of the types that their parameters are annotated with; what does not fit is final."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from tests.worker import process_handlers

import stepkeep as sk


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str
    since: datetime.date


class Item(msgspec.Struct):
    sku: str
    count: int = 1


class Order(pydantic.BaseModel):
    total: Decimal
    paid_at: datetime.datetime | None = None


class Extra(TypedDict):
    note: str


class Opaque:
    """A type without a JSON form."""


FITTING: list[tuple[Any, Any, Any]] = [
    (datetime.date, "2026-03-01", datetime.date(2026, 3, 1)),
    (datetime.datetime, "2026-03-01T10:00:00Z", datetime.datetime(2026, 3, 1, 10, tzinfo=datetime.UTC)),
    (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
    (uuid.UUID, "01890000-0000-7000-8000-000000000001", uuid.UUID("01890000-0000-7000-8000-000000000001")),
    (Decimal, "10.50", Decimal("10.50")),
    (Colour, "red", Colour.RED),
    (float, 3, 3.0),
    (int, 3.0, 3),
    (Address, {"street": "Hauptstrasse", "since": "2020-01-01"}, Address("Hauptstrasse", datetime.date(2020, 1, 1))),
    (list[Item], [{"sku": "a"}], [Item("a")]),
    (Order, {"total": "9.90"}, Order(total=Decimal("9.90"))),
    (Order | None, None, None),
    (dict[str, Order], {"x": {"total": 1}}, {"x": Order(total=Decimal(1))}),
    (Extra, {"note": "n"}, {"note": "n"}),
    (Annotated[int, msgspec.Meta(ge=3)], 3, 3),
    (Annotated[int, pydantic.Field(gt=2)], 3, 3),
    (set[int], [1, 1], {1}),
    (Item | Address | None, None, None),
    (Opaque, {"left": "alone"}, {"left": "alone"}),
    (Callable[[], int], "left alone", "left alone"),
    (Any, [1], [1]),
    (dict, {"a": 1}, {"a": 1}),
    ("NoSuchName", {"left": "alone"}, {"left": "alone"}),
]

UNFIT: list[tuple[Any, Any, str]] = [
    (int, "five", "Expected `int`, got `str`"),
    (int, 3.5, "Expected `int`"),
    (int, True, "Expected `int`, got `bool`"),
    (str, 5, "Expected `str`, got `int`"),
    (str, None, "Expected `str`, got `null`"),
    (datetime.date, "tomorrow", "date"),
    (Colour, "blue", "Invalid enum value"),
    (Address, {"street": 5, "since": "2020-01-01"}, r"\$.street"),
    (Order, {"total": "much"}, "total: Input should be a valid decimal"),
    (list[Item], [{"sku": "a", "count": "b"}], r"\$\[0\].count"),
    (Literal["a", "b"], "c", "Invalid enum value"),
    (Annotated[int, msgspec.Meta(ge=3)], 1, ">= 3"),
    (Annotated[int, pydantic.Field(gt=2)], 1, "greater than 2"),
]


def run(tmp_path: Path, annotation: Any, value: Any, *, is_async: bool) -> tuple[sk.Result, list[Any]]:
    """Run one step whose only parameter has this annotation; returns what it was given too."""
    received: list[Any] = []

    def plain(value: Any) -> None:
        received.append(value)

    async def coroutine(value: Any) -> None:
        received.append(value)

    function = coroutine if is_async else plain
    function.__annotations__["value"] = annotation
    registry = sk.Registry()
    sk.step("typed", registry=registry)(function)
    flow = sk.Workflow("typed", registry=registry)
    flow.step("only", function)
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        return engine.run(flow, {"value": value}), received


@pytest.mark.parametrize("number", range(len(FITTING)))
def test_an_annotated_parameter_receives_its_type(number: int, tmp_path: Path) -> None:
    annotation, given, wanted = FITTING[number]
    result, received = run(tmp_path, annotation, given, is_async=number % 2 == 0)
    assert str(result.state) == "succeeded", result
    assert (received, type(received[0])) == ([wanted], type(wanted))


@pytest.mark.parametrize("number", range(len(UNFIT)))
def test_a_value_that_does_not_fit_is_named_and_never_tried_again(number: int, tmp_path: Path) -> None:
    annotation, given, said = UNFIT[number]
    result, received = run(tmp_path, annotation, given, is_async=number % 2 == 0)
    [step] = result.view["steps"]
    assert (step["state"], step["category"], step["attempts"], received) == ("failed", "validation", 1, [])
    assert "the parameter `value` does not fit" in step["error"]
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(step["error"])
    assert "much" not in step["error"], "values may be secrets"


def test_a_default_of_none_admits_null_and_a_context_is_not_converted(tmp_path: Path) -> None:
    registry, received = sk.Registry(), []

    @sk.step("typed", registry=registry)
    def typed(ctx: sk.Context, day: datetime.date = None, /, *, count: int = None) -> None:  # noqa: RUF013
        received.append((ctx.step, day, count))

    flow = sk.Workflow("typed", registry=registry)
    flow.step("named", typed, inputs={"count": None})
    flow.step("alone", typed, inputs="2026-03-01")
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        engine.run(flow, check=True)
    assert received == [("named", None, None), ("alone", datetime.date(2026, 3, 1), None)]


def test_a_handler_in_a_process_receives_its_types_too(tmp_path: Path) -> None:
    registry = sk.Registry()
    sk.step("weekday", mode="process", registry=registry)(process_handlers.weekday)
    flow = sk.Workflow("typed", registry=registry)
    flow.step("only", "weekday")
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        assert engine.run(flow, {"day": "2026-03-01"}, check=True).output == 6
        [step] = engine.run(flow, {"day": "soon"}).view["steps"]
    assert (step["category"], step["attempts"]) == ("validation", 1)
