"""The invariants of seed 003, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of an action gives its dependencies, its order and its completion mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stepkeep.dialects.dialect import Invariant, Line, Say

ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})
WAITING = "WaitingForManualCompletion"
MOST_ATTEMPTS = 10

UNSIGNALLED = frozenset({"cancelled", "deadline_passed", "deadline_tolerated"})
"""Why a manual action may end without a signal: its run stops or is cancelled, or its declared deadline passes."""

Look = Callable[["Story", "Move", Say], None]


class Move(NamedTuple):
    """One line about an action (`action` is its id) or about the run itself (`action` is None)."""

    action: str | None
    source: str | None
    target: str
    facts: Mapping[str, Any]


class Story:
    """The state of the run and its actions before the current line."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.settled_at: dict[str, int] = {}
        self.failed: str | None = None
        self.started: list[tuple[int, int, tuple[int, str]]] = []

    def take(self, move: Move) -> None:
        if move.action is None:
            return
        self.facts.setdefault(move.action, move.facts)
        self.states[move.action] = move.target
        if move.target in ENDED:
            self.settled_at[move.action] = move.facts["seq"]
        if move.target == "Failed":
            self.failed = self.failed or move.action

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


def _watching(look: Look) -> Callable[[Say], Callable[[Line], None]]:
    """A checker that keeps the timeline and sees each line before it is added."""

    def check(say: Say) -> Callable[[Line], None]:
        story = Story()

        def feed(line: Line) -> None:
            kind, facts = line["event_type"], line["metadata"]
            if kind in ("action_state_transition", "run_state_transition"):
                action = str(facts["step"]) if kind == "action_state_transition" else None
                move = Move(action, line["from_state"], line["to_state"], facts)
                look(story, move, say)
                story.take(move)

        return feed

    return check


def _starts(move: Move) -> bool:
    return move.action is not None and (move.source, move.target) == ("Pending", "Running")


def _predecessors_are_done(story: Story, move: Move, say: Say) -> None:
    """In a sequence any ending will do; an edge needs success."""
    if not _starts(move) or move.action is None:
        return
    for name in story.after(move.action):
        state = story.states.get(name)
        if state not in ENDED:
            say(f"action {move.action} starts while {name}, which comes before it, is {state}")
        elif state != "Succeeded" and not story.is_sequence:
            say(f"action {move.action} starts although {name}, which it needs, is {state}")


def _dispatch_goes_by_order(story: Story, move: Move, say: Say) -> None:
    """Of actions that became runnable together and are claimed together, the lower order goes first."""
    if not _starts(move) or move.action is None or move.facts.get("because") != "claimed":
        return
    seq, since, rank = move.facts["seq"], story.runnable_since(move.action), story.rank(move.action)
    later = [other for at, then, other in story.started if (at, then) == (seq, since) and other > rank]
    if later:
        say(f"action {move.action} is dispatched after {later[0][1]}, which was runnable with it and comes later")
    story.started = [*(entry for entry in story.started if entry[0] == seq), (seq, since, rank)]


def _no_start_after_a_failure(story: Story, move: Move, say: Say) -> None:
    if _starts(move) and story.failed is not None:
        say(f"action {move.action} starts although {story.failed} has failed")


def _manual_means_manual(story: Story, move: Move, say: Say) -> None:
    if move.action is None or move.source is None:
        return
    manual = story.facts[move.action].get("completion") == "manual"
    if move.target == WAITING and not manual:
        say(f"action {move.action} waits for manual completion, and its completion mode is automatic")
    if manual and (move.source, move.target) == ("Running", "Succeeded"):
        say(f"action {move.action} succeeds without its manual completion")


def _a_signal_ends_the_wait(story: Story, move: Move, say: Say) -> None:
    if move.source != WAITING or move.facts.get("event") == "completion_signalled":
        return
    if move.target == "Succeeded" or move.facts.get("because") not in UNSIGNALLED:
        say(f"action {move.action} leaves {WAITING} for {move.target} without a signal")


def _attempts_are_bounded(story: Story, move: Move, say: Say) -> None:
    if move.action is None:
        return
    facts = story.facts.get(move.action, move.facts)
    most, attempt = facts.get("max_attempts", 0), move.facts.get("attempt")
    if move.source is None and not 1 <= most <= MOST_ATTEMPTS:
        say(f"action {move.action} may be tried {most} times; 1 to {MOST_ATTEMPTS} are allowed")
    if attempt is not None and attempt > most:
        say(f"action {move.action} is at attempt {attempt}, and at most {most} are allowed")


def _endings_agree(story: Story, move: Move, say: Say) -> None:
    if move.action is not None or move.target not in ENDED:
        return
    for name, state in story.states.items():
        if state not in ENDED:
            say(f"the run is {move.target} while action {name} is {state}")
        elif move.target == "Succeeded" and state == "Failed":
            say(f"the run is Succeeded although action {name} is Failed")


def _every_line_is_evidence(story: Story, move: Move, say: Say) -> None:
    if not (move.facts.get("run_id") and move.facts.get("correlation_id")):
        say("a transition does not say which run it belongs to and what it is correlated with")
    ran = move.action is not None and story.states.get(move.action) in ("Running", WAITING)
    if ran and move.target in ENDED and move.facts.get("because") == "failed" and not move.facts.get("attempt"):
        say(f"action {move.action} failed, and no attempt is named")
    if ran and move.target == "Failed" and not move.facts.get("category"):
        say(f"action {move.action} failed, and its error is not classified")


# fmt: off
INVARIANTS = (
    Invariant("predecessors first",     "003 §1.1, §1.2 join, §2 rule 1", _watching(_predecessors_are_done)),
    Invariant("deterministic dispatch", "003 §1.2 order, then actionId",  _watching(_dispatch_goes_by_order)),
    Invariant("fail-fast",              "003 §1.3 no new actions",        _watching(_no_start_after_a_failure)),
    Invariant("manual completion",      "003 §2 rules 2 and 3",           _watching(_manual_means_manual)),
    Invariant("manual signal",          "003 §2 rule 4, §3.3",            _watching(_a_signal_ends_the_wait)),
    Invariant("bounded attempts",       "003 §3.1 maxAttempts 1 to 10",   _watching(_attempts_are_bounded)),
    Invariant("endings agree",          "003 §1.3, §4 final run outcome", _watching(_endings_agree)),
    Invariant("evidence",               "003 §5",                         _watching(_every_line_is_evidence)),
)
# fmt: on
