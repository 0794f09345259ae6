"""Follows how one run ends: why it stops, whom it blames, what it cancels and undoes, and how it must end.

`reenact.py` calls it for each hop of the run, and when a step or an undo step has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepkeep.conformance.causes import RunCauses
from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.dependencies import Dependencies
from stepkeep.conformance.hop import wrong_field
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import NOT_RUN, FollowedStep

RUN_ENDED = frozenset({"succeeded", "failed", "cancelled", "rolled_back"})
WORDS = "some words"
"""Stands for the words of the engine about a timeout or a cancel, which are free."""

BLAMING = ("step_failed", "rules_failed")
"""Triggers of the run that name a step as their reason."""

AFTER_TIMEOUT = frozenset({"time_came", "cancel_requested"})
"""Events that may come first after the timeout of a run, and do not go on with it."""


class RunEnding:
    """The end of one run, as far as its hops have made it necessary."""

    def __init__(
        self, contract: Contract, steps: Mapping[int, FollowedStep], causes: RunCauses, dependencies: Dependencies
    ) -> None:
        self._contract, self._steps, self._causes, self._dependencies = contract, steps, causes, dependencies
        self._document = contract.document
        self.started_at: int | None = None
        self.must_stop: int | None = None
        self.must_cancel = False
        self.hooks: list[int] = []
        self.stopped_at: int | None = None
        self.stopped_in = 0
        self.blamed: int | None = None
        self.cause: str | None = None
        self.policy = ""
        self.tolerated_failures = 0
        self.is_partial = self.has_hook_failed = False
        self._stopped_by = self._cancelled_by = (0, "", "")
        self._category: str | None = None
        self._error: str | None = None

    # -- time ------------------------------------------------------------------------------------------------------
    @property
    def _limit_at(self) -> int | None:
        """When the timeout of the run ends, if it has one and the log shows its start."""
        timeout, began = self._document.timeout, self.started_at
        if timeout is None or began is None:
            return None
        return min(began, began if self._causes.adoption.began_at is None else self._causes.adoption.began_at) + timeout

    def check_in_time(self, line: Line, say: Say) -> None:
        """Nothing goes on with a run whose timeout has passed: the first event after it ends the run. A timer of a step
        may be swept before that of its run."""
        limit, is_stopped = self._limit_at, self.cause is not None
        if limit is None or is_stopped or line.at < limit or line.event in AFTER_TIMEOUT:
            return
        say(Code.TIMER, f"{quoted(line.event)} goes on with the run at {line.at}, but its timeout ended at {limit}")

    def _check_timeout(self, line: Line, say: Say) -> None:
        limit = self._limit_at
        if self._document.timeout is None:
            say(Code.TIMER, "the run times out, but its definition has no timeout")
        elif limit is not None and line.at < limit:
            say(Code.TIMER, f"the run times out at {line.at}, but its timeout ends at {limit}")

    @property
    def grace_end(self) -> int:
        return (self.stopped_at or 0) + self._document.grace

    # -- stopping --------------------------------------------------------------------------------------------------
    def run_hop(self, line: Line, say: Say) -> None:
        """Check a hop of the run that belongs to its end."""
        check = RUN_HOPS.get(line.trigger)
        if check is not None:
            check(self, line, say)
        if line.target in RUN_ENDED:
            self._check_blame(line, say)
        elif (line.category, line.error) != (None, None):
            found = line.category or line.error
            said = wrong_field("category or error", found, None, "only the end of a run has them")
            say(Code.CONTRADICTION, f"the run: {said}")

    def blame(self, category: str | None, error: str | None) -> None:
        """The first failure is the one that the end of the run repeats."""
        if self._category is None:
            self._category, self._error = category, error

    def stop(self, line: Line, say: Say) -> None:
        of = self._contract.numbers.get(line.of or "")
        self.policy = self._document.on_failure
        if line.trigger in BLAMING:
            self._stop_by(of, line, say)
        elif line.trigger == "steps_failed" and not self.tolerated_failures:
            say(Code.POLICY, "the run stops because steps failed, but none failed under 'continue'")
        elif line.trigger == "timed_out":
            self._check_timeout(line, say)
            self.blame("timeout", WORDS)
        elif line.trigger == "undo_requested":
            self.policy = "compensate"
            if self._causes.asked.get("compensate") is not True:
                say(Code.POLICY, "the run stops to be undone, but its cause does not ask for compensation")
            self.blame(None, WORDS)
        self.cause = {"timed_out": "timeout", "undo_requested": "cancel"}.get(line.trigger, "failure")
        self.must_stop, self.stopped_at, self.stopped_in, self.blamed = None, line.at, line.seq, of
        self._stopped_by = line.seq, line.event, line.actor
        self._dependencies.clear()

    def _stop_by(self, of: int | None, line: Line, say: Say) -> None:
        """A failed step stops the run, by its own policy if it is one of the definition."""
        if self.must_stop is None or of != self.must_stop:
            say(Code.POLICY, f"the run stops because of {quoted(line.of)}, which does not make that necessary")
        failed, place = self._steps.get(-1 if of is None else of), self._contract.places.get(-1 if of is None else of)
        if place is not None and place.phase == "main" and place.rule is not None:
            self.policy = place.rule.on_failure
        if failed is not None:
            self.blame(failed.category, failed.error)

    def cancel(self, line: Line, say: Say) -> None:
        if self._cancelled_by[0] == line.seq:
            _check_together(line, self._cancelled_by, say)
        self.must_cancel, self.cause, self._error = False, "cancel", WORDS
        self._dependencies.clear()
        if line.source != "idle" and self._causes.asked.get("compensate") is not False:
            say(Code.POLICY, "the run is cancelled at once, but its cause asks for compensation")

    def cancelled_step(self, line: Line, flag: Say) -> None:
        """A step is cancelled before its run has stopped: then the run stops or is cancelled by the same cause."""
        if self._cancelled_by[0] == line.seq:
            _check_together(line, self._cancelled_by, flag)
        self.must_cancel, self._cancelled_by = True, (line.seq, line.event, line.actor)

    def check_with_stop(self, line: Line, flag: Say) -> None:
        _check_together(line, self._stopped_by, flag)

    def check_fenced_off(self, step: FollowedStep, line: Line, flag: Say) -> None:
        """What is in flight has until the end of the grace period, unless its lease is lost. The timeout of a run that
        undoes nothing waits for nothing."""
        is_in_grace = self.stopped_at is not None and line.at < self.grace_end
        is_lost = not step.is_timer_known or (step.due_at is not None and line.at > step.due_at)
        undoes = self.policy == "compensate" or self._document.compensate_always
        ends_at_once = self.cause == "timeout" and self.stopped_in == line.seq and not undoes
        if line.event == "time_came" and step.leased and is_in_grace and not ends_at_once and not is_lost:
            flag(Code.TIMER, f"it is fenced off before its grace period ends at {self.grace_end}")

    # -- the rollback ----------------------------------------------------------------------------------------------
    def end_stopping(self, line: Line, say: Say) -> None:
        hooks = self.hooks = self._to_undo()
        expected = "undo_started" if hooks else "stopped_cancelled" if self.cause == "cancel" else "stopped_failed"
        if line.trigger != expected:
            why = f"{len(hooks)} steps are to be undone" if hooks else f"nothing is to be undone after a {self.cause}"
            say(Code.POLICY, f"the run: trigger is {quoted(line.trigger)}, expected {quoted(expected)}: {why}")
        if hooks:
            self._dependencies.to_open[hooks[0]] = None

    def _to_undo(self) -> list[int]:
        """The hooks that must run, in their order."""
        if self.policy != "compensate" and not self._document.compensate_always:
            return []
        undone = [
            step for no, step in sorted(self._steps.items()) if self._is_undone(step, self._contract.places.get(no))
        ]
        undo_no = self._contract.places.undo_no
        return [undo_no(step.no) for step in sorted(undone, key=lambda one: one.settled, reverse=True)]

    def _is_undone(self, step: FollowedStep, place: PlannedRule | None) -> bool:
        """Whether this step has an undo that must run. An effect that stays makes the rollback partial."""
        adoption = self._causes.adoption
        if adoption.remains(step):
            self.is_partial = True
            return False
        rule = place.rule if place is not None and place.phase == "main" and not adoption.is_anothers(step) else None
        if rule is None or rule.growth is not None:
            return False
        ran = step.fence > 1 or (step.fence == 1 and not (step.error or "").startswith(NOT_RUN))
        is_done = step.state == "succeeded" or adoption.is_owned(step)
        has_effect = is_done or (ran and rule.compensate_when == "attempted")
        if rule.undo is not None or rule.effect != "read":
            self.is_partial |= (rule.undo is None) if has_effect else step.is_unsure is True
        return has_effect and rule.undo is not None

    def hook_ended(self, place: PlannedRule, line: Line) -> None:
        failed = line.target != "succeeded"
        self.is_partial |= failed
        self.has_hook_failed |= failed
        if place.no in self.hooks:
            self.hooks.remove(place.no)
        if failed and self._document.hook_failure == "stop":
            self.blamed = self.blamed if line.trigger == "cancelled" else place.no
        elif self.hooks:
            self._dependencies.to_open[self.hooks[0]] = place.no

    def end_rollback(self, line: Line, say: Say) -> None:
        if self.hooks and not (self._document.hook_failure == "stop" and self.has_hook_failed):
            name = self._contract.places[self.hooks[0]].name
            say(Code.UNDO, f"the rollback ends, but {quoted(name)} has not run")
        if (line.trigger == "undo_failed") != self.is_partial:
            expected = "undo_failed" if self.is_partial else "undone"
            say(Code.UNDO, f"the run: trigger is {quoted(line.trigger)}, expected {quoted(expected)}")

    # -- the end ---------------------------------------------------------------------------------------------------
    def pass_rules(self, line: Line, say: Say) -> None:
        check = self._steps.get(2 * self._contract.size)
        if self._document.rules and (check is None or check.state != "succeeded"):
            found = "" if check is None else check.state
            say(Code.ENDING, f"the run passes its rules, but its check is {quoted(found)}")

    def _check_blame(self, line: Line, say: Say) -> None:
        category, error = (None, None) if line.target == "succeeded" else (self._category, self._error)
        if line.category != category:
            say(Code.ENDING, f"the run: {wrong_field('category', line.category, category, 'its first failure')}")
        if line.error is None if error == WORDS else line.error != error:
            say(Code.ENDING, f"the run: {wrong_field('error', line.error, error, 'why it ended')}")

    def entry_ended(self, say: Say) -> None:
        """What the entry made necessary has happened in it."""
        if self.must_stop is not None:
            name = self._contract.places[self.must_stop].name
            say(Code.POLICY, f"the run goes on although {quoted(name)} failed: it must stop")
        if self.must_cancel:
            say(Code.POLICY, "steps are cancelled, but the run neither stops nor is cancelled")
        self.must_stop, self.must_cancel = None, False


def _check_together(line: Line, cause: tuple[int, str, str], flag: Say) -> None:
    """What one cause leads to in one entry has its event and its actor."""
    if (line.seq, line.event, line.actor) != cause:
        found, expected = f"{line.event} by {line.actor}", f"{cause[1]} by {cause[2]}"
        flag(Code.CAUSE, wrong_field("event and actor", found, expected, "that cancels its steps"))


RUN_HOPS: Mapping[str, Callable[[RunEnding, Line, Say], None]] = {
    **dict.fromkeys(("step_failed", "steps_failed", "rules_failed", "timed_out", "undo_requested"), RunEnding.stop),
    **dict.fromkeys(("stopped_failed", "stopped_cancelled", "undo_started"), RunEnding.end_stopping),
    **dict.fromkeys(("undone", "undo_failed"), RunEnding.end_rollback),
    "cancelled": RunEnding.cancel,
    "rules_passed": RunEnding.pass_rules,
}
"""What each trigger of a run asks for that belongs to its end."""
