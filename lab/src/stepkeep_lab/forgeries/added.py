"""Forgeries about steps that only a log tells of: those that handlers add (`sk.then`), and the calls of flows.

They change what was added, what it waits for, and what its end means. Each function takes a fresh copy of a true log
and a source of chance, and returns the changed lines or None. They are offered to logs with such steps alone.
`kinds.py` collects them.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, NamedTuple

from stepkeep_lab.forgeries.seals import redefined
from stepkeep_lab.forgeries.stories import Forge, Line, cause_of, of_steps, step_of, without

THEN, FLOW = "then", "flow"
"""The two kinds of such steps. The calls of a flow are of several kinds."""
ENDED = ("succeeded", "failed", "skipped", "cancelled")


class Added(NamedTuple):
    """One added step: its name in the log, the list that tells of it, and its place there."""

    name: str
    calls: list[dict[str, Any]]
    place: int

    @property
    def call(self) -> dict[str, Any]:
        return self.calls[self.place]

    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call["step"]
        return found


def lists_of(lines: list[Line], about: str = THEN) -> list[tuple[dict[str, Any], str]]:
    """Each record of a growth by `then`, or by calls of a flow, with the name of its owner."""
    found: list[tuple[dict[str, Any], str]] = []
    for line in lines:
        detail = line["metadata"].get("detail")
        grown: Any = detail.get("plan_grown", {}) if isinstance(detail, dict) else {}
        for owner, record in grown.items():
            if record.get("calls") and (record["calls"][0].get("kind") == THEN) == (about == THEN):
                found.append((grown, owner))
    return found


def has_added(lines: list[Line], about: str = THEN) -> bool:
    """Whether a handler of this run has added steps, or a flow has made calls."""
    return bool(lists_of(lines, about))


def added_in(lines: list[Line], about: str = THEN) -> list[Added]:
    """All added steps, in the order in which they were told."""
    found: list[Added] = []
    counts: dict[str, int] = {}
    for grown, owner in lists_of(lines, about):
        calls = grown[owner]["calls"]
        for place in range(len(calls)):
            found.append(Added(f"{owner}[{counts.get(owner, 0)}]", calls, place))
            counts[owner] = counts.get(owner, 0) + 1
    return found


def lines_of(lines: list[Line], name: str, *because: str) -> list[Line]:
    return [line for line in of_steps(lines, *because) if step_of(line) == name]


# -- what was added --------------------------------------------------------------------------------------------------
def added_step_dropped(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """Its lines are removed, and the list that tells of it stays: a handler may add nothing. Its owner has succeeded:
    the steps of a list that comes after the stop of its run are never planned, and a dialect may hide that stop."""
    chosen = [one for one in _of_succeeded(lines, about) if (own := lines_of(lines, one.name)) and not _tells(own)]
    return without(lines, lines_of(lines, random.choice(chosen).name)) if chosen else None


def _of_succeeded(lines: list[Line], about: str) -> list[Added]:
    """The added steps whose owner has succeeded."""
    owners = {step_of(line) for line in of_steps(lines, "rules_passed")}
    return [one for one in added_in(lines, about) if one.name.partition("[")[0] in owners]


def _tells(own: list[Line]) -> bool:
    return any("detail" in line["metadata"] for line in own)


def added_step_untold(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    added = added_in(lines, about)
    if not added:
        return None
    random.choice(added).calls.pop()
    return lines


def added_step_told_again(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """The list has one more step, which is never planned. A flow that stops does not plan its last calls."""
    added = added_in(lines, about) if about == THEN else _of_succeeded(lines, about)
    if not added:
        return None
    one = random.choice(added)
    one.calls.append({**deepcopy(one.call), "name": "forged"})
    return lines


def added_name_twice(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    chosen = [one for one in added_in(lines, about) if one.place]
    if not chosen:
        return None
    one = random.choice(chosen)
    one.call["name"] = one.calls[0]["name"]
    return lines


def added_without_a_template(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    added = added_in(lines, about)
    if not added:
        return None
    del random.choice(added).call["step"]
    return lines


def added_under_another_step(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    found = lists_of(lines, about)
    if not found:
        return None
    grown, owner = random.choice(found)
    grown["forged"] = grown.pop(owner)
    return lines


def added_beyond_the_limit(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """The definition allows one step less than were added."""
    owners = [one.name.partition("[")[0] for one in added_in(lines, about)]
    written = {step["name"]: step for step in lines[0]["metadata"]["definition"]["steps"]}
    chosen = sorted({name for name in owners if owners.count(name) > 1 and name in written})
    if not chosen:
        return None
    name = random.choice(chosen)
    written[name]["growth"]["max"] = owners.count(name) - 1
    redefined(lines)
    return lines


# -- what it waits for -----------------------------------------------------------------------------------------------
def added_dependency_forgotten(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """A step that waited for another one is said to wait for nothing."""
    chosen = [one for one in added_in(lines, about) if one.call.get("after") and _opened_by(lines, one)]
    if not chosen:
        return None
    del random.choice(chosen).call["after"]
    return lines


def _opened_by(lines: list[Line], one: Added) -> bool:
    return any(str(line["metadata"].get("of", "")).endswith("]") for line in lines_of(lines, one.name))


def added_dependency_invented(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """A step is said to wait for another one of its list, and began before that one had ended."""
    chosen = []
    added = added_in(lines, about)
    for one in added:
        began = [lines.index(line) for line in lines_of(lines, one.name, "claimed")]
        for other in added if began else ():
            ends = [lines.index(line) for line in lines_of(lines, other.name) if line["to_state"] in ENDED]
            if other.calls is one.calls and other is not one and ends and ends[-1] > began[0]:
                chosen.append((one, other.place))
    if not chosen:
        return None
    one, place = random.choice(chosen)
    one.call.setdefault("after", []).append({"place": place, "allow": ["succeeded"]})
    return lines


# -- what its end means ----------------------------------------------------------------------------------------------
def added_step_never_ends(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """The owner has succeeded, and the end of one of its steps is removed."""
    ends = [line for one in _of_succeeded(lines, about) for line in lines_of(lines, one.name, "rules_passed")]
    return without(lines, [random.choice(ends)]) if ends else None


def added_failure_borne(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """A step that failed its owner is said to be one that may fail."""
    chosen = [one for one in added_in(lines, about) if _failed_its_owner(lines, one)]
    if not chosen:
        return None
    random.choice(chosen).template["on_failure"] = "skip"
    return lines


def _failed_its_owner(lines: list[Line], one: Added) -> bool:
    owner = one.name.partition("[")[0]
    fails = lines_of(lines, owner, "children_failed", "children_failed_tolerated")
    failed = any(str(line["metadata"].get("error", "")).startswith(f"{one.name} failed") for line in fails)
    return failed and one.template.get("on_failure") != "skip"


def added_with_fewer_attempts(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    chosen = [one for one in added_in(lines, about) if lines_of(lines, one.name, "retry_scheduled")]
    if not chosen:
        return None
    random.choice(chosen).template.setdefault("retry", {})["max_attempts"] = 1
    return lines


def added_undo_removed(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """A step was undone, and is said to have no undo."""
    chosen = [one for one in added_in(lines, about) if lines_of(lines, f"undo:{one.name}") and "undo" in one.template]
    if not chosen:
        return None
    del random.choice(chosen).template["undo"]
    return lines


def added_undo_invented(lines: list[Line], random: Random, about: str = THEN) -> list[Line] | None:
    """A step of a run that was rolled back is said to have an undo, and was not undone."""
    if not any(cause_of(line) == "undo_started" for line in lines):
        return None
    done = [one for one in added_in(lines, about) if lines_of(lines, one.name, "rules_passed")]
    chosen = [one for one in done if "undo" not in one.template and "executor" in one.template]
    if not chosen:
        return None
    one = random.choice(chosen)
    one.template["undo"] = {"executor": deepcopy(one.template["executor"])}
    return lines


ADDED_STORIES: list[tuple[str, str, Forge]] = [
    (forge.__name__, what, forge)
    for forge, what in (
        (added_step_dropped, "an added step is removed whole"),
        (added_step_untold, "an added step is not told"),
        (added_step_told_again, "an added step is told that was never planned"),
        (added_name_twice, "two added steps have one name"),
        (added_without_a_template, "an added step has no template"),
        (added_under_another_step, "the steps are added by another step"),
        (added_beyond_the_limit, "more steps are added than allowed"),
        (added_dependency_forgotten, "an added step waited for nothing"),
        (added_dependency_invented, "an added step did not wait for another"),
        (added_step_never_ends, "an added step never ends"),
        (added_failure_borne, "the failure of an added step may be borne"),
        (added_with_fewer_attempts, "an added step has one attempt"),
        (added_undo_removed, "an added step has no undo"),
        (added_undo_invented, "an added step is not undone"),
    )
]
"""Each forgery of added steps with what it changes."""

_OF_CALLS = (
    (added_step_dropped, "call_dropped", "a call is removed whole"),
    (added_step_untold, "call_untold", "a call is not told"),
    (added_step_told_again, "call_told_again", "a call is told that was never planned"),
    (added_without_a_template, "call_without_a_template", "a call has no template"),
    (added_under_another_step, "calls_of_another_flow", "the calls are those of another flow"),
    (added_beyond_the_limit, "calls_beyond_the_limit", "a flow makes more calls than allowed"),
    (added_step_never_ends, "call_never_ends", "a call never ends"),
    (added_with_fewer_attempts, "call_with_fewer_attempts", "a call has one attempt"),
    (added_undo_removed, "call_undo_removed", "a call has no undo"),
    (added_undo_invented, "call_undo_invented", "a call is not undone"),
)
CALL_STORIES: list[tuple[str, str, Forge]] = [
    (name, what, partial(forge, about=FLOW)) for forge, name, what in _OF_CALLS
]
"""The same of calls of flows, as far as they apply: a call waits for no other one, and two may have one name."""
