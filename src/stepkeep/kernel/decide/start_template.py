"""Start template: the creation decision of a plan, computed once and copied for each new run with its own ids and
times.

The template is an ordinary creation decision at time zero for a run without an id, with all checks made. A copy differs
from it in ids and times alone. Plans with a policy, and plans with a condition, a gate or a sleep until a moment among
their first steps, have no template.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.create import create_run, origin_of
from stepkeep.kernel.decide.decision import Decision
from stepkeep.kernel.decide.draft import vouched
from stepkeep.kernel.machine.journal import GENESIS, Cause, Hop, SealedEntry, chain, open_entry
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan, PlannedStep

_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct, frozen=True, gc=False):
    """An `Entry` whose hops are already encoded."""

    tenant: str
    run_id: str
    seq: int
    at: int
    causes: tuple[Cause, ...]
    hops: msgspec.Raw


class StartTemplate(msgspec.Struct, frozen=True):
    """The creation of any run of a plan. `hops` are encoded in `text` unless they contain times."""

    plan: Plan
    run: Run
    steps: tuple[Step, ...]
    causes: tuple[Cause, ...]
    hops: tuple[Hop, ...]
    text: msgspec.Raw | None

    def instantiate(
        self,
        *,
        run_id: str,
        priority: int,
        business_key: str | None,
        given: bytes,
        caller: Caller,
        now: int,
        asked_before: bytes | None = None,
    ) -> Decision:
        """The decision that `create_run` would make for this run."""
        run, text = self.run, self.text
        if text is None:
            text = _written([replace(hop, due_at=_after(hop.due_at, now)) for hop in self.hops])
        first, *later = self.causes
        causes = (
            Cause(
                first.event,
                caller.actor,
                vouched(origin_of(self.plan, given, asked_before), caller),
            ),
            *[Cause(cause.event, caller.actor) for cause in later],
        )
        body = _encode(_Body(caller.tenant, run_id, run.seq, now, causes, text))
        entry = SealedEntry(caller.tenant, run_id, run.seq, now, body, chain(GENESIS, body))
        created = replace(
            run,
            tenant=caller.tenant,
            id=run_id,
            priority=priority,
            business_key=business_key,
            head=entry.hash,
            due_at=_after(run.due_at, now),
            started_at=_after(run.started_at, now),
            ended_at=_after(run.ended_at, now),
            moved_at=now,
        )
        steps = [
            replace(
                step,
                tenant=caller.tenant,
                run_id=run_id,
                priority=priority,
                ready_at=_after(step.ready_at, now),
                due_at=_after(step.due_at, now),
            )
            for step in self.steps
        ]
        return Decision(was=0, run=created, replies=(), added=tuple(steps), entry=entry)


def start_template(plan: Plan, *, start: bool) -> StartTemplate | None:
    """The template of a plan, if all its creations are alike."""
    if start and (plan.policies or any(_differs(plan.steps[no]) for no in plan.roots)):
        return None
    first = create_run(
        plan, run_id="", priority=0, business_key=None, given=b"null", caller=Caller("", ""), now=0, start=start
    )
    assert first.entry is not None
    entry = open_entry(first.entry.body)
    timed = any(hop.due_at is not None for hop in entry.hops)
    return StartTemplate(
        plan, first.run, first.added, entry.causes, entry.hops, None if timed else _written(entry.hops)
    )


def _differs(planned: PlannedStep) -> bool:
    """Whether the openings of this step differ in more than a shift of time."""
    wait = planned.definition.wait
    has_own_time = wait is not None and (wait.until is not msgspec.UNSET or wait.length is not msgspec.UNSET)
    owns = planned.segment is not None or planned.definition.child is not msgspec.UNSET
    return planned.condition is not None or planned.gate is not None or has_own_time or owns


def _after(moment: int | None, now: int) -> int | None:
    return None if moment is None else moment + now


def _written(hops: Sequence[Hop]) -> msgspec.Raw:
    return msgspec.Raw(_encode(hops))
