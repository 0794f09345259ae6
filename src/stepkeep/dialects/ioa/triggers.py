"""The trigger of a workflow resource (companion schema: `trigger: {event, condition, schedule}`, all texts).

An event and a schedule are two triggers. The schema gives conditions and schedules no grammar: a condition is CEL over
the payload of the event (`riskScore >= 0.7`), a schedule is a cron expression, a name such as `@daily`, or an interval
(`1h`). What cannot be read is refused. The front end calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepkeep.definition.durations import InvalidDuration, parse_duration
from stepkeep.definition.findings import Finding
from stepkeep.definition.native.triggers import check_trigger, triggers_of
from stepkeep.definition.native.written import TriggerBlock as NativeBlock
from stepkeep.dialects.ioa.written import IoaTriggerBlock
from stepkeep.kernel.triggers import TriggerSpec

PATH = ("spec", "trigger")


def check(written: IoaTriggerBlock | None) -> Iterator[Finding]:
    """Problems of the trigger of a resource."""
    if written is None:
        return
    if written.condition is not None and written.event is None:
        said = "A condition is about an event, and this trigger has none."
        yield Finding((*PATH, "condition"), said, "Add `event`, or remove it.", key=True)
        return
    for block in _blocks(written):
        for one in check_trigger(block, PATH):
            last = "schedule" if one.path[-1] == "every" else one.path[-1]
            yield one._replace(path=(*one.path[:-1], last))


def build(written: IoaTriggerBlock | None) -> tuple[TriggerSpec, ...]:
    """The triggers of a resource that passed every check."""
    return () if written is None else triggers_of(_blocks(written))


def _blocks(written: IoaTriggerBlock) -> list[NativeBlock]:
    found: list[dict[str, Any]] = []
    if written.event is not None:
        condition = {} if written.condition is None else {"condition": written.condition}
        found.append({"event": written.event, **condition})
    if written.schedule is not None:
        found.append({"every" if _is_interval(written.schedule) else "schedule": written.schedule})
    return [NativeBlock.model_validate(one) for one in found]


def _is_interval(text: str) -> bool:
    try:
        return parse_duration(text) >= 1_000_000
    except InvalidDuration:
        return False
