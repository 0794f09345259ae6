"""The models of seed 001's template: strict, unknown keys refused.

`front` checks relations between the parts and fills in the defaults.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.native.validators import SeedAttempts, within
from stepkeep.definition.native.written import Block, Name, Text
from stepkeep.dialects.chains import StepWord

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
