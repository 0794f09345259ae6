"""The kinds of steps, one row each: how a step opens, whether a worker claims it, and what it waits for.

The judge's own table, written without the engine's. `contract.py` reads the kind of each step from the definition; the
guards of `enabled.py` ask the row. What elements, calls and added steps do is followed in `growth.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stepkeep.conformance.machines import STEP

OPENINGS = frozenset({"dependencies_met", "gate_opened", "held", "wait_opened", "children_started"})
"""How a step can open, by its kind."""

EVERY = frozenset(trigger for trigger, _ in STEP)
WITH_ADDED = frozenset({"children_succeeded", "children_failed", "children_failed_tolerated", "rules_passed"})
"""How a step ends whose handler added steps: with one of these, whatever ended that."""

ENDS_OF_WAITS = frozenset({"wait_satisfied", "message_arrived", "deadline_passed", "deadline_tolerated"})
"""How a wait for a message ends, and no sleep does."""

ENDS_OF_CHILDREN = frozenset({"children_succeeded", "children_failed", "children_failed_tolerated"})
BY_GATE, BY_HOLD = frozenset({"approved", "deadline_approved"}), frozenset({"hold_approved", "hold_deadline_approved"})
"""How a gate is approved, which then succeeds, and how a hold is, which then is ready."""

UNFIT = frozenset({"held_unfit", "code_changed"})
"""How a flow holds whose code does not fit, and how other code ends that."""

OR_REPORT = ("time_came", "step_reported")


class JudgedKind(NamedTuple):
    """One kind of step. `waits_for` is what moves it while it awaits others: elements, calls, added steps or a child.

    `follows` are triggers that any event may lead to, because the step moves with others; `events` are the events of a
    trigger where they differ from those of other kinds. `never` are triggers that the kind rules out, and `may_also`
    those of a held step that it has in any case. `suspends`: it begins to wait by the report of its worker.
    """

    word: str
    opens_by: str = "dependencies_met"
    is_claimed: bool = True
    waits_for: str = ""
    suspends: bool = False
    follows: frozenset[str] = frozenset()
    events: Mapping[str, tuple[str, ...]] = {}
    never: frozenset[str] = frozenset()
    may_open_by: frozenset[str] = frozenset({"held"})
    may_also: frozenset[str] = frozenset()

    @property
    def owns(self) -> bool:
        """Whether no worker runs the step itself, but its elements."""
        return self.waits_for == "elements"


_WOKEN = UNFIT | {"children_settled"}
_OTHERS = _WOKEN | BY_GATE | {"slept"}
"""What only flows, gates and sleeps do."""
_ELEMENTS = JudgedKind(
    "map",
    opens_by="children_started",
    is_claimed=False,
    waits_for="elements",
    follows=EVERY,
    never=_OTHERS,
    may_open_by=frozenset({"held", "children_started"}),
)
_CHILD = JudgedKind("child", opens_by="children_started", is_claimed=False, waits_for="child", never=_OTHERS)
_GROWING, _NO = frozenset({"held", "children_started"}), frozenset[str]()
WORK = JudgedKind("work", never=_OTHERS | ENDS_OF_CHILDREN)
HOOK_OF_CHILD = _CHILD._replace(word="rollback", may_open_by=frozenset())
"""An undo step that waits for the rollback of a child run."""

KINDS: Mapping[str, JudgedKind] = {
    kind.word: kind
    for kind in (
        WORK,
        JudgedKind("approval", "gate_opened", is_claimed=False, never=WORK.never - BY_GATE | BY_HOLD, may_open_by=_NO),
        JudgedKind("wait", "wait_opened", is_claimed=False, never=WORK.never, may_open_by=_NO),
        JudgedKind("sleep", "wait_opened", False, never=WORK.never - {"slept"} | ENDS_OF_WAITS, may_open_by=_NO),
        _ELEMENTS,
        _ELEMENTS._replace(word="loop"),
        _ELEMENTS._replace(word="switch"),
        JudgedKind(
            "flow",
            waits_for="calls",
            suspends=True,
            events={"deadline_passed": OR_REPORT, "deadline_tolerated": OR_REPORT},
            never=BY_GATE | ENDS_OF_CHILDREN | {"slept"},
            may_open_by=_GROWING,
            may_also=frozenset({"held_exhausted", "operator_retried"}),
        ),
        JudgedKind(
            "then",
            waits_for="added",
            suspends=True,
            follows=WITH_ADDED,
            never=_OTHERS,
            may_open_by=_GROWING,
        ),
        _CHILD,
        _CHILD._replace(word="detached", follows=frozenset({"children_succeeded", "rules_passed"})),
    )
}
"""A flow that is suspended after its deadline ends with that report. A step with a detached child succeeds in the entry
that opens it, after any event."""
