"""The invariants of seed 003, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of an action gives its dependencies, its order and its completion mode.
"""

from __future__ import annotations

from stepkeep.dialects.dialect import Say
from stepkeep.dialects.timeline import ShownChange, Timeline, decided_in_time, invariants, late_enough

ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})
WAITING = "WaitingForManualCompletion"
MOST_ATTEMPTS = 10

UNSIGNALLED = frozenset({"cancelled", "deadline_passed", "deadline_tolerated"})
"""Why a manual action may end without a signal: its run stops or is cancelled, or its declared deadline passes."""


class ActionTimeline(Timeline):
    """The run and its actions; when each ended, the first failure, and the last dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.settled_at: dict[str, int] = {}
        self.failed: str | None = None
        self.started: list[tuple[int, int, tuple[int, str]]] = []

    def take(self, change: ShownChange) -> None:
        super().take(change)
        if change.enters(*ENDED):
            self.settled_at[change.step] = change.facts["seq"]
        if change.enters("Failed"):
            self.failed = self.failed or change.step

    def after(self, action: str) -> list[str]:
        """The dependencies of the action."""
        return list(self.facts[action].get("depends_on", ()))

    def rank(self, action: str) -> tuple[int, str]:
        """Its number in dispatch order (§1.2)."""
        return self.facts[action].get("order", 0), action

    def runnable_since(self, action: str) -> int:
        """The entry in which its last predecessor ended; 0 without predecessors."""
        return max((self.settled_at.get(name, 0) for name in self.after(action)), default=0)

    @property
    def is_sequence(self) -> bool:
        """Whether every action follows the one before it and nothing else, as in the log of a workflow without
        edges."""
        ordered = sorted(self.facts, key=self.rank)
        before = [[], *([name] for name in ordered[:-1])]
        return [self.after(name) for name in ordered] == before


def _starts(change: ShownChange) -> bool:
    return change.source == "Pending" and change.enters("Running")


def _predecessors_are_done(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    """In a sequence any ending will do; an edge needs success."""
    if not _starts(change):
        return
    for name in timeline.after(change.step):
        state = timeline.steps.get(name)
        if state not in ENDED:
            say(f"action {change.step} starts while {name}, which comes before it, is {state}")
        elif state != "Succeeded" and not timeline.is_sequence:
            say(f"action {change.step} starts although {name}, which it needs, is {state}")


def _dispatch_goes_by_order(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    """Of actions that became runnable together and are claimed together, the lower order goes first."""
    if not _starts(change) or change.facts.get("because") != "claimed":
        return
    seq, since, rank = change.facts["seq"], timeline.runnable_since(change.step), timeline.rank(change.step)
    later = [other for at, then, other in timeline.started if (at, then) == (seq, since) and other > rank]
    if later:
        say(f"action {change.step} is dispatched after {later[0][1]}, which was runnable with it and comes later")
    timeline.started = [*(entry for entry in timeline.started if entry[0] == seq), (seq, since, rank)]


def _no_start_after_a_failure(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if _starts(change) and timeline.failed is not None:
        say(f"action {change.step} starts although {timeline.failed} has failed")


def _the_run_starts_first(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if _starts(change) and timeline.run in (None, "Pending"):
        say(f"action {change.step} starts while the run is {timeline.run or 'not created'}")


def _manual_means_manual(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if not change.step or change.source is None:
        return
    manual = timeline.facts[change.step].get("completion") == "manual"
    if change.target == WAITING and not manual:
        say(f"action {change.step} waits for manual completion, and its completion mode is automatic")
    if manual and (change.source, change.target) == ("Running", "Succeeded"):
        say(f"action {change.step} succeeds without its manual completion")


def _a_signal_ends_the_wait(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if change.source != WAITING or change.facts.get("event") == "completion_signalled":
        return
    if change.target == "Succeeded" or change.facts.get("because") not in UNSIGNALLED:
        say(f"action {change.step} leaves {WAITING} for {change.target} without a signal")


def _attempts_are_bounded(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if not change.step:
        return
    facts = timeline.facts.get(change.step, change.facts)
    most, attempt = facts.get("max_attempts", 0), change.facts.get("attempt")
    if change.source is None and not 1 <= most <= MOST_ATTEMPTS:
        say(f"action {change.step} may be tried {most} times; 1 to {MOST_ATTEMPTS} are allowed")
    if attempt is not None and attempt > most:
        say(f"action {change.step} is at attempt {attempt}, and at most {most} are allowed")


def _endings_agree(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if not change.enters_run(*ENDED):
        return
    for name, state in timeline.steps.items():
        if state not in ENDED:
            say(f"the run is {change.target} while action {name} is {state}")
        elif change.target == "Succeeded" and state == "Failed":
            say(f"the run is Succeeded although action {name} is Failed")


def _every_line_is_evidence(timeline: ActionTimeline, change: ShownChange, say: Say) -> None:
    if not (change.facts.get("run_id") and change.facts.get("correlation_id")):
        say("a transition does not say which run it belongs to and what it is correlated with")
    ran = bool(change.step) and timeline.steps.get(change.step) in ("Running", WAITING)
    if ran and change.target in ENDED and change.facts.get("because") == "failed" and not change.facts.get("attempt"):
        say(f"action {change.step} failed, and no attempt is named")
    if ran and change.target == "Failed" and not change.facts.get("category"):
        say(f"action {change.step} failed, and its error is not classified")


# fmt: off
INVARIANTS = invariants(ActionTimeline, ("action", "run"), (
    ("predecessors first",     "003 §1.1, §1.2 join, §2 rule 1",_predecessors_are_done),
    ("deterministic dispatch", "003 §1.2 order, then actionId",  _dispatch_goes_by_order),
    ("fail-fast",              "003 §1.3 no new actions",        _no_start_after_a_failure),
    ("a run starts first",     "003 §2 Pending -> Running",      _the_run_starts_first),
    ("signals in time",        "003 §3.3 only while it waits",   decided_in_time),
    ("waits until their end",  "003 §3.2 on timeout",            late_enough),
    ("manual completion",      "003 §2 rules 2 and 3",           _manual_means_manual),
    ("manual signal",          "003 §2 rule 4, §3.3",            _a_signal_ends_the_wait),
    ("bounded attempts",       "003 §3.1 maxAttempts 1 to 10",   _attempts_are_bounded),
    ("endings agree",          "003 §1.3, §4 final run outcome", _endings_agree),
    ("evidence",               "003 §5",                         _every_line_is_evidence),
), with_head=False)
# fmt: on
