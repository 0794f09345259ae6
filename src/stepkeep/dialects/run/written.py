"""The models of seed 001's template: strict, unknown keys refused.

`front` checks relations between the parts and fills in the defaults.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.attempts import SeedAttempts
from stepkeep.definition.durations import format_duration, parse_duration
from stepkeep.definition.written import Block, DurationText, Name, Text
from stepkeep.dialects.chains import StepWord

NAMED = ("template", "template_name", "name")
"""The three keys for a template's name: in a file, in a request, in the table of templates."""

LONGEST_TIMEOUT = bounds.STEP_TIMEOUT[1] // bounds.SECOND


def _duration(value: Any, limits: tuple[int, int]) -> int:
    if value is None:
        raise PydanticCustomError("empty", "is empty")
    found, (least, most) = parse_duration(value), limits
    if not least <= found <= most:
        span = {"least": format_duration(least), "most": format_duration(most)}
        raise PydanticCustomError("out_of_bounds", "must be from {least} to {most}", span)
    return found


def _within(limits: tuple[int, int]) -> BeforeValidator:
    return BeforeValidator(partial(_duration, limits=limits), json_schema_input_type=DurationText)


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
    retry_base_delay: Annotated[int, _within(bounds.DELAY)] = Field(default=2 * bounds.SECOND)
    reclaim_after: Annotated[int, _within(bounds.LEASE)] = Field(default=30 * bounds.SECOND)
    default_step_timeout: Annotated[int, _within(bounds.STEP_TIMEOUT)] = Field(default=30 * bounds.SECOND)
    steps: list[StepRow] = Field(min_length=1, max_length=bounds.MAX_STEPS)


_DURATIONS = ("retry_base_delay", "reclaim_after", "default_step_timeout")


def amend(schema: dict[str, Any]) -> None:
    """Durations as they are written, and exactly one of the three names."""
    for name in _DURATIONS:
        schema["properties"][name]["default"] = format_duration(schema["properties"][name]["default"])
    for name in NAMED:
        schema["properties"][name] = schema["properties"][name]["anyOf"][0]
    schema["oneOf"] = [{"required": [name]} for name in NAMED]
