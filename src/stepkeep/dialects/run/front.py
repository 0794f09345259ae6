"""The front end of `run`: a template in, the kernel's definition or all problems out.

Every default is made explicit. It executes nothing and contains only the checks of this format: names and positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.template_text import WHOLE_INPUT
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.build import GRACE
from stepkeep.definition.native.validators import SeedAttempts, within
from stepkeep.definition.native.written import Block, Name, Text
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.chains import StepWord, check_known, distinct, placement
from stepkeep.dialects.format import Format, FormatReading, listed
from stepkeep.kernel.definition import SECOND, Approval, Backoff, Definition, Dependency, Handler, Retry, StepDefinition
from stepkeep.kernel.machine.states import OnFailure, StepState
from stepkeep.network.failures import RequestFailed
from stepkeep.network.urls import parse

NAMED = ("template", "template_name", "name")
"""The three keys for a template's name: in a file, in a request, in the table of templates."""

LONGEST_TIMEOUT = bounds.STEP_TIMEOUT[1] // bounds.SECOND


class StepRow(Block):
    """One row of a template: its position, its handler, and the timeout of an attempt."""

    position: int = Field(ge=0, le=bounds.MAX_ORDER)
    name: StepWord
    timeout_seconds: int | None = Field(default=None, ge=1, le=LONGEST_TIMEOUT)


class TemplateBlock(Block):
    """A workflow template of the run service."""

    template: Name | None = None
    template_name: Name | None = None
    name: Name | None = None
    version: int = Field(default=1, ge=1, le=bounds.MAX_VERSION)
    description: Text = ""
    priority: int = Field(default=0, ge=-bounds.MAX_PRIORITY, le=bounds.MAX_PRIORITY)
    max_attempts: SeedAttempts = 3
    retry_base_delay: Annotated[int, within(bounds.DELAY)] = Field(default=2 * bounds.SECOND)
    reclaim_after: Annotated[int, within(bounds.LEASE)] = Field(default=30 * bounds.SECOND)
    default_step_timeout: Annotated[int, within(bounds.STEP_TIMEOUT)] = Field(default=30 * bounds.SECOND)
    webhook_url: Text | None = None
    webhook_secret: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)] | None = None
    steps: list[StepRow] = Field(min_length=1, max_length=bounds.MAX_STEPS)


_DURATIONS = ("retry_base_delay", "reclaim_after", "default_step_timeout")


def amend(schema: dict[str, Any]) -> None:
    """Durations as they are written, and exactly one of the three names."""
    for name in _DURATIONS:
        schema["properties"][name]["default"] = format_duration(schema["properties"][name]["default"])
    for name in NAMED:
        schema["properties"][name] = schema["properties"][name]["anyOf"][0]
    schema["oneOf"] = [{"required": [name]} for name in NAMED]


GATE = "APPROVAL"
"""The one name that is not a handler: workers never execute it."""


def build(written: TemplateBlock, handlers: Registry | None = None) -> Definition:
    """The canonical definition of a template that passed every check."""
    rows = sorted(written.steps, key=lambda row: row.position)
    names = distinct([row.name for row in rows])
    steps = [
        _step(row, name, names[place - 1] if place else None, written, handlers)
        for place, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    return Definition(
        name=written.template or written.template_name or written.name or "",
        version=written.version,
        dialect="run",
        description=written.description,
        steps=tuple(steps),
        timeout=None,
        on_failure=OnFailure.ABORT,
        lease=written.reclaim_after,
        grace=GRACE,
        priority=written.priority,
        about=_about(written),
    )


def _about(written: TemplateBlock) -> dict[str, str]:
    named = {"webhook_url": written.webhook_url, "webhook_secret": written.webhook_secret}
    return {key: value for key, value in named.items() if value is not None}


def _step(
    row: StepRow, name: str, before: str | None, written: TemplateBlock, handlers: Registry | None
) -> StepDefinition:
    # Only success lets the next step continue: "all earlier steps in the same run are already SUCCEEDED".
    after = () if before is None else (Dependency(step=before, allow=(StepState.SUCCEEDED,)),)
    if row.name == GATE:
        gate = Approval()
        return StepDefinition(
            name=name, order=row.position, approval=gate, depends_on=after, on_failure=OnFailure.ABORT
        )
    seconds = row.timeout_seconds
    return StepDefinition(
        name=name,
        order=row.position,
        executor=Handler(name=row.name),
        inputs=WHOLE_INPUT,
        depends_on=after,
        timeout=written.default_step_timeout if seconds is None else seconds * SECOND,
        retry=retry_of(written),
        on_failure=OnFailure.ABORT,
        **placement(row.name, handlers),
    )


def retry_of(written: TemplateBlock) -> Retry:
    """`now + 2^attempts * base_delay`, where the claim has counted the attempt: the first backoff is twice the base."""
    return Retry(
        max_attempts=written.max_attempts,
        backoff=Backoff.EXPONENTIAL,
        initial=2 * written.retry_base_delay,
        factor=2.0,
        max=None,
    )


def _named(data: dict[str, Any]) -> Iterator[Finding]:
    given = [key for key in NAMED if key in data]
    if not given:
        yield Finding((), "`template` is missing.", "Give the template a name: `template: default`.")
    for key in given:
        if data[key] is None:
            yield Finding((key,), f"`{key}` is empty.", "Give the template a name.", key=True)
    for other in given[1:]:
        yield Finding((other,), f"The template is named twice, by `{given[0]}` and `{other}`.", "Keep one.", key=True)


def _positions(data: dict[str, Any]) -> Iterator[Finding]:
    """Unique and without a gap, from 1 (or 0) on; unreadable positions were reported already."""
    rows = listed(data, ("steps",))
    found = [
        (row["position"], ("steps", place, "position"))
        for place, row in enumerate(rows)
        if isinstance(row, dict) and type(row.get("position")) is int
    ]
    seen: dict[int, Path] = {}
    for position, path in found:
        if position in seen:
            yield Finding(path, f"Position {position} is taken already.", "Give each step a position of its own.")
        seen.setdefault(position, path)
    if not seen or len(seen) < len(rows):
        return  # a missing or doubled position causes further gaps
    ordered = sorted(seen)
    if ordered[0] > 1:
        yield Finding(seen[ordered[0]], f"The first position is {ordered[0]}.", "Positions begin at 1.")
    for one, following in pairwise(ordered):
        if following != one + 1:
            said = f"Position {following} follows position {one}."
            yield Finding(seen[following], said, f"Positions have no gaps: write {one + 1}.")
            return


def _handlers(data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for place, row in enumerate(listed(data, ("steps",))):
        name = row.get("name") if isinstance(row, dict) else None
        if isinstance(name, str) and name and name != GATE:
            yield ("steps", place, "name"), name


def _advice(written: TemplateBlock) -> Iterator[Finding]:
    for place, row in enumerate(written.steps):
        if row.name == GATE and row.timeout_seconds is not None:
            said = f"`timeout_seconds` of {GATE} does nothing: no worker executes it, and a gate waits for people."
            yield Finding(("steps", place, "timeout_seconds"), said, "Remove it.", key=True, ignored=True)
        elif row.name != GATE and row.name.upper() == GATE:
            said = f"`{row.name}` is run by a handler of that name; only `{GATE}` is a gate for people."
            yield Finding(("steps", place, "name"), said, f"Write `{GATE}` if you mean the gate.")


def _claims(data: dict[str, Any]) -> bool:
    """A template has steps, and a template name or positions."""
    if not isinstance(data.get("steps"), list):
        return False
    if "template" in data or "template_name" in data:
        return True
    return "name" in data and any(isinstance(step, dict) and "position" in step for step in data["steps"])


def _webhook(data: dict[str, Any]) -> Iterator[Finding]:
    url = data.get("webhook_url")
    if isinstance(url, str):
        try:
            parse(url)
        except RequestFailed as problem:
            yield Finding(
                ("webhook_url",), f"`webhook_url`: {problem}", "Write an address such as https://shop.example/."
            )
    if "webhook_secret" in data and "webhook_url" not in data:
        said = "`webhook_secret` signs what goes to `webhook_url`, which is missing."
        yield Finding(("webhook_secret",), said, "Add `webhook_url`, or remove it.", key=True)


def _problems(reading: FormatReading[TemplateBlock]) -> Iterator[Finding]:
    yield from _named(reading.data)
    yield from _webhook(reading.data)
    yield from _positions(reading.data)
    if reading.handlers is not None:
        yield from check_known(_handlers(reading.data), reading.handlers)


FRONT = Format(
    model=TemplateBlock,
    title="Stepkeep workflow, as a template of the run service (seed 001)",
    is_a="A template is a mapping that begins with `template: NAME`.",
    claims=_claims,
    problems=_problems,
    build=lambda written, reading: build(written, reading.handlers),
    advice=lambda written, *_: _advice(written),
    amend=amend,
)
"""Templates of seed 001."""
