"""Hooks that a definition declares: the cursors that a new run brings for them, and the sinks that relays send to.

A hook is pinned with the version of its definition: its sink is named `hook:WORKFLOW@VERSION/NAME`, and is read from
the stored definition. It sends nothing. Starts, the relay and the commands of the outbox call it.
"""

from __future__ import annotations

import msgspec

from stepkeep.kernel.definition import Definition, Hook
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent, matches, prefix_of
from stepkeep.store.deliveries import HOOK, WHOLE, Takes
from stepkeep.store.rows import Delivery, SinkRow

ENDINGS = frozenset(f"run.{state}" for state in RUN_TERMINAL)


class Selection(msgspec.Struct, frozen=True):
    """Which events go to a sink: those that a pattern matches, of one step if one is named."""

    patterns: tuple[str, ...] = ("*",)
    step: str | None = None

    def takes(self, event: OutgoingEvent) -> bool:
        return self.step in (None, event.step) and matches(self.patterns, event.type)


def sink_of(definition: Definition, hook: Hook) -> str:
    """The name of the sink of a hook."""
    return f"{HOOK}{definition.name}@{definition.version}/{hook.name}"


def takes_of(hook: Hook) -> Takes:
    """What a hook takes. One for ends of the run alone is due once, and not with every transition."""
    return Takes.ENDINGS if ENDINGS.issuperset(hook.on) else Takes.TRANSITIONS


def hook_cursors(definition: Definition, run: Run, now: int) -> tuple[Delivery, ...]:
    """The cursors of a new run for the hooks of its definition."""
    return tuple(_cursor(definition, hook, run, now) for hook in definition.declared_hooks)


def _cursor(definition: Definition, hook: Hook, run: Run, now: int) -> Delivery:
    takes = takes_of(hook)
    is_due = takes is Takes.TRANSITIONS or run.ended_at is not None
    return Delivery(
        tenant=run.tenant,
        run_id=run.id,
        sink=sink_of(definition, hook),
        takes=int(takes),
        last=run.seq if is_due else 0,
        sent=0,
        sent_number=WHOLE,
        ready_at=now if is_due else None,
    )


async def hook_sink(transactor: Transactor, tenant: str, name: str) -> tuple[SinkRow, Selection] | None:
    """The sink of this name as its definition declares it; None where that cannot be read."""
    workflow, _, rest = name.removeprefix(HOOK).rpartition("@")
    version, _, called = rest.partition("/")
    stored = await transactor.store.read_definition(tenant, workflow, int(version)) if version.isdigit() else None
    if stored is None:
        return None
    try:
        definition = transactor.plans.add(stored).definition
    except (StepkeepError, msgspec.MsgspecError):
        return None
    for hook in definition.declared_hooks:
        if hook.name == called:
            row = SinkRow(
                tenant=tenant,
                name=name,
                kind=hook.kind,
                takes=int(takes_of(hook)),
                prefix=prefix_of(hook.on),
                patterns=hook.on,
                options=msgspec.json.encode(hook.options, order="sorted"),
                created_at=0,
                created_by="",
            )
            return row, Selection(hook.on, None if hook.step is msgspec.UNSET else hook.step)
    return None
