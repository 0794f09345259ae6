"""The end of a path: the states of run and steps, what was undone, what was left behind, and the time it took.

An effect is left behind when a step completed and no undo step reversed it. It is in doubt when an attempt timed out,
was lost or was fenced off. Pure: a world in, a value out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from stepkeep.kernel.definition import Effect
from stepkeep.kernel.machine.states import STEP_WAITING, Phase, Rollback, RunState, StepState
from stepkeep.simulate.children import child_key
from stepkeep.simulate.fates import Deviation, Fate
from stepkeep.simulate.world import World


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one path. `states` has the main steps in plan order; `elapsed` is in microseconds of the virtual
    clock.

    `children_undone` names the steps whose children were rolled back, as `children_of` does.
    `ended` is False when only a person or a message could change the run; `waits` then names the steps.
    """

    deviations: tuple[Deviation, ...]
    state: RunState
    rollback: Rollback
    states: tuple[StepState, ...]
    ended: bool
    elapsed: int
    undone: tuple[str, ...] = ()
    children_undone: tuple[str, ...] = ()
    hooks_failed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    irreversible: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path as text."""
        return ", then ".join(what.text for what in self.deviations) or "all goes well"

    @property
    def fates(self) -> frozenset[Fate]:
        return frozenset(what.fate for what in self.deviations)

    @property
    def leaves_something(self) -> bool:
        """Whether an effect remains by the definition: no undo step failed, and no person asked for a plain cancel."""
        is_undone_well = not self.hooks_failed and Fate.CANCELLED not in self.fates
        return is_undone_well and self.ended and bool(self.left or self.irreversible)

    def counts(self) -> dict[str, int]:
        """The number of steps per final state."""
        return {str(state): number for state, number in Counter(self.states).items()}


def ending_of(world: World) -> Ending:
    plan, rows = world.stage.plan, world.rows
    size = plan.size
    hooks = sorted((row for no, row in rows.items() if plan.is_undo(no)), key=lambda row: row.settled or 0)
    undone = {plan.main_no(row.no) for row in hooks if row.state is StepState.SUCCEEDED}
    undos = [plan.of(row) for row in hooks if row.state is StepState.SUCCEEDED]
    left: list[str] = []
    irreversible: list[str] = []
    in_doubt: list[str] = []
    if world.run.state is not RunState.SUCCEEDED:
        for no in sorted((world.done | world.unsure) - undone):
            planned = plan.at(no)
            definition = planned.definition
            if planned.phase is not Phase.MAIN:
                continue
            if no not in world.done:
                in_doubt.append(definition.name)
            elif definition.effect is Effect.IRREVERSIBLE and definition.undo is None:
                irreversible.append(definition.name)
            else:
                left.append(definition.name)
    return Ending(
        deviations=world.deviations,
        state=world.run.state,
        rollback=world.run.rollback,
        states=tuple([rows[no].state for no in range(size)]),
        ended=world.over,
        elapsed=world.now,
        undone=_once(one.definition.name for one in undos),
        children_undone=_once(child_key(one) for one in undos if one.kind.undoes_child),
        hooks_failed=_once(plan.of(row).definition.name for row in hooks if row.state is StepState.FAILED),
        left=_once(left),
        irreversible=_once(irreversible),
        in_doubt=_once(in_doubt),
        waits=() if world.over else tuple(world.name(no) for no in waiting(world)),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    """The names of steps as they are written: elements have the name of their owner, which stands there once."""
    return tuple(dict.fromkeys(names))


def waiting(world: World) -> list[int]:
    """The steps that wait for a person or a message."""
    return sorted(no for no, row in world.live.items() if row.state in STEP_WAITING)
