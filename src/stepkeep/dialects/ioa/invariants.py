"""The invariants of seed 000, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its dependencies and its policy.
"""

from __future__ import annotations

from stepkeep.dialects.dialect import Say
from stepkeep.dialects.timeline import ShownChange, Timeline, decided_in_time, invariants, late_enough

ENDED = frozenset({"completed", "failed", "cancelled"})
SETTLED = frozenset({"completed", "failed", "skipped", "cancelled"})
EXECUTING = "000 §1 executing: steps are being processed; compensating → executing must not occur"
GOING = frozenset({"executing", "blocked"})


class IoaTimeline(Timeline):
    """The workflow and its steps, with the failed ones in the order of their failure."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[str, None] = {}
        self.open: dict[str, None] = {}
        """Gates that wait for a person."""

    def take(self, change: ShownChange) -> None:
        super().take(change)
        if change.step:
            self.open.pop(change.step, None)
        if change.enters("running") and change.facts.get("because") == "gate_opened":
            self.open[change.step] = None
        if change.step:
            self.failed.pop(change.step, None)
        if change.enters("failed"):
            self.failed[change.step] = None


def _nothing_after_the_end(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if timeline.run in ENDED:
        say(f"the workflow is {timeline.run}, which is terminal, and {change.entity} moves on")


def _steps_start_while_it_executes(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("running") and timeline.run not in GOING:
        say(f"step {change.step} starts while the workflow is {timeline.run}")


def _dependencies_first(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("running"):
        for other in timeline.facts.get(change.step, {}).get("depends_on", ()):
            if timeline.steps.get(other) not in ("completed", "skipped"):
                say(f"step {change.step} starts while {other}, which it depends on, is {timeline.steps.get(other)}")


def _none_starts_after_a_failure(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("running") and timeline.failed:
        say(f"step {change.step} starts after {next(iter(timeline.failed))} has failed")


def _skip_is_asked_for(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    # The policy is about failures. A person may skip any step that has begun and that no worker holds.
    if change.step and change.source == "running" and change.facts.get("because") != "operator_skipped":
        facts = timeline.facts.get(change.step)
        policy = None if facts is None else facts.get("on_failure", "")
        if (change.target == "skipped") != (policy == "skip") and change.target in ("skipped", "failed"):
            say(f"step {change.step} has onFailure {policy} and ends {change.target}")


def _completed_means_finished(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("completed") and timeline.run != "compensating":
        for name in timeline.steps:
            if timeline.steps[name] not in ("completed", "skipped"):
                say(f"the workflow is completed and step {name} is {timeline.steps[name]}")


def _failed_has_a_reason(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("failed") and timeline.run != "compensating":
        timed_out = change.facts.get("category") == "timeout"
        if not timed_out and not timeline.having("failed"):
            say("the workflow has failed, no step has, and it was no timeout")


def _blocked_on_a_step(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("blocked") and not timeline.having("running"):
        say("the workflow is blocked and no step waits for input")


def _blocked_by_an_open_gate(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    # A worker claims nothing while the workflow is paused, for which the seed has no word.
    is_claim = change.enters("running") and change.facts.get("because") == "claimed"
    if is_claim and timeline.open and timeline.run == "executing":
        say(f"step {change.step} starts while the gate {next(iter(timeline.open))} is open, and nothing blocks")


def _attempts_are_bounded(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    most = timeline.facts.get(change.step, {}).get("max_attempts")
    attempt = change.facts.get("attempt")
    if change.step and most is not None and attempt is not None and attempt > most:
        say(f"step {change.step} is at attempt {attempt}, and at most {most} are allowed")


def _only_completed_is_undone(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("compensating") and not timeline.having("completed"):
        say("the workflow compensates and no step was completed")


def _every_step_is_settled(timeline: IoaTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run(*ENDED, "compensating"):
        for name, state in timeline.steps.items():
            if state not in SETTLED:
                say(f"the workflow is {change.target} and step {name} is still {state}")


# fmt: off
INVARIANTS = invariants(IoaTimeline, ("step", "workflow"), (
    ("nothing-after-the-end",         "000 §1 completed → any (terminal)",           _nothing_after_the_end),
    ("steps-start-while-it-executes", EXECUTING,                                     _steps_start_while_it_executes),
    ("dependencies-first",            "000 §5.1 step-d waits for both",              _dependencies_first),
    ("none-starts-after-a-failure",   "000 §3.3 abort, compensate stop it",          _none_starts_after_a_failure),
    ("skip-is-asked-for",             "000 §2 skipped (onFailure: skip)",            _skip_is_asked_for),
    ("completed-means-finished",      "000 §1 completed: all steps",                 _completed_means_finished),
    ("failed-has-a-reason",           "000 §1 failed: one or more steps; §3.4",      _failed_has_a_reason),
    ("blocked-on-a-step",             "000 §1 blocked: a step requires human input", _blocked_on_a_step),
    ("blocked-by-an-open-gate",       "000 §1 blocked: waiting for external input",  _blocked_by_an_open_gate),
    ("attempts-are-bounded",          "000 §3.2 maxRetries: maximum retry attempts", _attempts_are_bounded),
    ("decided-in-time",               "000 §1 blocked → failed: timeout",            decided_in_time),
    ("blocked-until-its-timeout",     "000 §1 blocked → failed: timeout",            late_enough),
    ("only-completed-is-undone",      "000 §4.2 rule 1",                             _only_completed_is_undone),
    ("every-step-is-settled",         "000 §6 guideline 6; §1 terminal states",      _every_step_is_settled),
), with_head=False)
# fmt: on
