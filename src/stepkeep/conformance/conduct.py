"""The judge's model of a whole run: which hops a run and a few of its steps may make, one at a time.

The arrows are data. The conditions under which an arrow is allowed are those that `history.py` checks in real journals.
Refinement explores the model exhaustively; tests walk it at random. It must allow every hop that the engine can make,
and should allow no other: an arrow that is allowed in vain makes an extension look used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from stepkeep.conformance.contract import OPERATED
from stepkeep.conformance.history import MOVING, QUIET, WAITING
from stepkeep.conformance.machines import Machines
from stepkeep.dialects.grounds import FINAL, Seen

IN_FLIGHT = ("running", "validating", "awaiting_children")
FINISHING = ("stopping", "compensating")
RUN = "run"
HOOK, CHECK = "undo:a", "check:run"
NAMES = ("a", "b", "c", "d")


class Situation(NamedTuple):
    """The states of a run, its main steps, one undo step and the final check; None before they exist.

    `cancelling` means that steps are being cancelled because their run is cancelled; no other hop may come in between.
    `tried` means that a step was started. Without that there is nothing to undo. `progressed` means that the run has
    left `queued`.
    """

    run: str | None
    steps: tuple[str | None, ...]
    hook: str | None = None
    check: str | None = None
    cancelling: bool = False
    tried: bool = False
    progressed: bool = False

    @property
    def all_steps(self) -> tuple[str | None, ...]:
        return (*self.steps, self.hook, self.check)


Hop = tuple[Seen, Situation]


class Conduct:
    """The model for runs of `size` main steps under the given tables. With `finishes`, the last of them is final."""

    def __init__(self, machines: Machines, size: int = 2, *, finishes: bool = False) -> None:
        self._last = size - 1 if finishes else None
        self._arrows = {name: _by_source(machines[name][0]) for name in ("run", "step")}
        self._run_ended, self._ended = frozenset(machines["run"][1]), frozenset(machines["step"][1])
        self.start = Situation(None, (None,) * size)

    def hops(self, now: Situation) -> Iterator[Hop]:
        """Every hop that is possible next."""
        if now.run in self._run_ended:
            return
        for trigger, target in self._arrows["run"].get(now.run, ()):
            if self._run_may(now, trigger):
                progressed = now.progressed or trigger == "progressed"
                after = now._replace(run=target, cancelling=False, progressed=progressed)
                yield Seen("run", RUN, now.run, trigger, target), after
        for place, state in enumerate(now.steps):
            for trigger, target in self._step_hops(now, "main", state):
                if place == self._last and state == "pending" and self._opens_early(now, target):
                    continue
                steps = (*now.steps[:place], target, *now.steps[place + 1 :])
                seen = Seen("step", NAMES[place], state, trigger, target, FINAL if place == self._last else "main")
                tried = now.tried or trigger == "claimed" or target == "succeeded"
                yield seen, now._replace(steps=steps, cancelling=_cancelling(now, trigger), tried=tried)
        for trigger, target in self._step_hops(now, "undo", now.hook):
            seen = Seen("step", HOOK, now.hook, trigger, target, "undo")
            yield seen, now._replace(hook=target)
        for trigger, target in self._step_hops(now, "check", now.check):
            seen = Seen("step", CHECK, now.check, trigger, target, "check")
            yield seen, now._replace(check=target, cancelling=_cancelling(now, trigger))

    def _opens_early(self, now: Situation, target: str) -> bool:
        """Whether a final step would begin before every other step has succeeded."""
        return target not in ("skipped", "cancelled") and set(now.steps[: self._last]) != {"succeeded"}

    # -- what the steps allow their run ------------------------------------------------------------------------------
    def _run_may(self, now: Situation, trigger: str) -> bool:
        if now.run is None:
            return True
        if None in now.steps or (now.cancelling and trigger != "cancelled"):
            return False
        settled, over = not self._open((*now.steps, now.check)), not self._open(now.all_steps)
        guards = {
            "steps_settled": settled and "failed" not in now.steps,
            "steps_failed": settled and "failed" in now.steps,
            "waiting": not _any(now.steps, MOVING) and _any(now.steps, WAITING),
            "step_failed": "failed" in now.steps,
            "rules_passed": over and now.check in (None, "succeeded"),
            "rules_failed": now.check == "failed",
            "stopped_failed": over,
            "stopped_cancelled": over,
            "undo_started": settled and now.tried,
            "undone": over and now.hook == "succeeded",
            "undo_failed": over and now.hook is not None,
            "cancelled": over,
            "unpaused": now.progressed,
            "unpaused_queued": not now.progressed,
        }
        # An unknown trigger may fire at any time, so that its effects are explored.
        return guards.get(trigger, True)

    def _open(self, states: Collection[str | None]) -> bool:
        return any(state is not None and state not in self._ended for state in states)

    # -- what the run allows its steps -------------------------------------------------------------------------------
    def _step_hops(self, now: Situation, phase: str, state: str | None) -> Iterator[tuple[str, str]]:
        for trigger, target in self._arrows["step"].get(state, ()):
            if self._step_may(now, phase, state, trigger, target):
                yield trigger, target

    def _step_may(self, now: Situation, phase: str, state: str | None, trigger: str, target: str) -> bool:
        run = now.run or ""
        if state is None:
            return run == {"main": "idle", "undo": "compensating", "check": "validating"}[phase] and not now.cancelling
        if now.cancelling or (trigger == "cancelled" and run not in FINISHING):
            return trigger == "cancelled" and run not in FINISHING and None not in now.steps
        if trigger in OPERATED and run == "paused" and state == "ready":
            return False
        is_rollback = phase == "undo" and target == "awaiting_children" and state == "pending"
        odd = target.startswith("awaiting_") or target == "skipped" or trigger in OPERATED
        if phase != "main" and not is_rollback and odd:
            return False
        if run == "stopping":
            settles = target in self._ended or trigger in ("completed", "children_succeeded")
            return phase != "undo" and (trigger == "cancelled" or (state in IN_FLIGHT and settles))
        if run == "paused":
            return phase == "main" and trigger != "claimed" and (now.progressed or trigger in QUIET["queued"])
        if run in QUIET:
            return trigger in QUIET[run] and None not in now.steps
        return phase == {"running": "main", "validating": "check", "compensating": "undo"}.get(run)


def _cancelling(now: Situation, trigger: str) -> bool:
    return now.cancelling or (trigger == "cancelled" and now.run not in FINISHING)


def _any(states: Collection[str | None], of: Collection[str]) -> bool:
    return any(state in of for state in states)


def _by_source(arrows: Collection[tuple[str | None, str, str]]) -> dict[str | None, list[tuple[str, str]]]:
    found: dict[str | None, list[tuple[str, str]]] = {}
    for source, trigger, target in sorted(arrows, key=lambda arrow: (arrow[0] or "", *arrow[1:])):
        found.setdefault(source, []).append((trigger, target))
    return found
