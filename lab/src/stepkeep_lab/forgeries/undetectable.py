"""The classes of forgeries that no reader of a canonical log can detect once the chain is recomputed, with reasons.

A class covers single changes, not whole kinds: a missed forgery counts as undetectable only if its change is of such a
class. A kept or signed head detects all of them. A dialect's log is judged beside its canonical log, which shows all.
A test compares the classes with the table in `docs/conformance.md`. `campaign.py` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Line = dict[str, Any]
FAILING = frozenset({"failed", "failed_tolerated", "retry_scheduled", "cancelled"})
FREE = frozenset(
    {
        "reason", "comment", "id", "vouched_by", "for", "by_right_of", "delegation", "key", "level", "evidence",
        "waits_for", "takes_timeouts", "where", "count", "until", "final", "retry_in_us", "start_at",
    }
)  # fmt: skip
"""Parts of a detail whose values come from outside; the judge knows every other name and what follows from it."""


class Change(NamedTuple):
    """One line of a true log and what a forgery made of it. `fields` are the fields that differ."""

    before: Line
    after: Line
    fields: frozenset[str]
    log: list[Line]
    place: int

    @property
    def because(self) -> str:
        said = self.before["metadata"]
        return str(said.get("because", self.before["trigger"]))

    def only(self, *names: str) -> bool:
        return self.fields <= set(names)

    @property
    def entry(self) -> list[Line]:
        """The lines of the true log that have the same entry."""
        return [line for line in self.log if line["metadata"].get("seq") == self.before["metadata"].get("seq")]

    @property
    def around(self) -> tuple[Line, Line]:
        """The lines of the true log before and after it."""
        return self.log[max(self.place - 1, 0)], self.log[min(self.place + 1, len(self.log) - 1)]

    @property
    def earlier(self) -> list[Line]:
        return self.log[: self.place]

    def metadata(self, name: str) -> tuple[Any, Any]:
        return self.before["metadata"].get(name), self.after["metadata"].get(name)


Covers = Callable[[Change], bool]
"""Whether a change in a canonical log is of a class."""


class Undetectable(NamedTuple):
    """A class: its name, what is forged, why the log cannot show it, and the test for a change.

    Without such a test it names whole kinds, which remove or move lines; `when` tests the true and the forged log.
    """

    name: str
    what: str
    reason: str
    covers: Covers | None = None
    kinds: frozenset[str] = frozenset()
    when: Callable[[list[Line], list[Line]], bool] | None = None


# -- tests for one change --------------------------------------------------------------------------------------------
def _error(change: Change) -> bool:
    return change.only("metadata.error") and all(change.metadata("error"))


def _actor(change: Change) -> bool:
    event = change.before["metadata"].get("event")
    return change.only("metadata.actor") and event != "step_reported"


def _detail(change: Change) -> bool:
    before, after = change.metadata("detail")
    if not change.only("metadata.detail") or not isinstance(before, dict):
        return False
    after = after if isinstance(after, dict) else {}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return changed <= FREE or change.before["metadata"].get("event") == "run_created"


def _verdict(change: Change) -> bool:
    """A verdict of a live policy that visibly stops no step: its rules are not in the log."""
    before, after = change.metadata("detail")
    if not change.only("metadata.detail") or not isinstance(before, dict) or not isinstance(before.get("policy"), dict):
        return False
    after = after if isinstance(after, dict) else {}
    if any(before.get(name) != after.get(name) for name in ({*before, *after} - {"policy"})):
        return False
    left = after.get("policy") or {}
    if not isinstance(left, dict):
        return False
    changed = [said for step, said in before["policy"].items() if left.get(step) != said]
    changed += [said for step, said in left.items() if step not in before["policy"]]
    return all(said.get("by") != "definition" and _goes_on(said) for said in changed)


def _goes_on(verdict: dict[str, Any]) -> bool:
    """Whether a step goes on after a verdict: a hold without terms holds nothing, because the step is a gate or was
    approved before."""
    return verdict.get("effect") == "allow" or (verdict.get("effect") == "hold" and "terms" not in verdict)


def _category(change: Change) -> bool:
    before, after = change.metadata("category")
    return change.only("metadata.category", "severity") and bool(before and after) and change.because in FAILING


def _output(change: Change) -> bool:
    return change.only("metadata.digest") and change.because not in ("gate_opened", "held")


def _lease(change: Change) -> bool:
    return change.only("metadata.due_at") and change.because in ("claimed", "completed", "waited")


def _time(change: Change) -> bool:
    """A time between those of the lines around it, and not before the timer that the log names for its step."""
    before, at = change.metadata("at")
    if not change.only("metadata.at", "timestamp") or type(at) is not int or type(before) is not int:
        return False
    is_measured = change.before["metadata"].get("event") == "step_reported" and change.because != "completed"
    if is_measured:
        return False
    earliest, latest = (line["metadata"]["at"] for line in change.around)
    return bool(max(earliest, _timer(change)) <= at <= latest)


def _timer(change: Change) -> int:
    """When the step was due by its line before."""
    step = change.before["metadata"].get("step")
    if step is None:
        return 0
    lines = [line["metadata"] for line in change.earlier if line["metadata"].get("step") == step]
    due_at = lines[-1].get("due_at", 0) if lines else 0
    return int(due_at) if due_at <= change.before["metadata"]["at"] else 0


def _cancel(change: Change) -> bool:
    """A cancel says whether to compensate, also where nothing is to be undone: before the start, or while stopping."""
    before, after = change.metadata("detail")
    if not change.only("metadata.detail") or not isinstance(before, dict) or not isinstance(after, dict):
        return False
    if {**before, "compensate": None} != {**after, "compensate": None} or type(after.get("compensate")) is not bool:
        return False
    has_begun = any(line["metadata"].get("event") not in (None, "run_created") for line in change.earlier)
    return not has_begun or _was_stopping(change.entry)


def _was_stopping(entry: list[Line]) -> bool:
    """Whether a cancel closes attempts without ending the run by itself: only in a run that stops already."""
    causes = [(line["metadata"].get("because", line["trigger"]), line["metadata"]) for line in entry]
    closes = any(because == "cancelled" and "duration_seconds" in said for because, said in causes)
    return closes and not any(because == "cancelled" and not {"step", "of"} & said.keys() for because, said in causes)


def _split(change: Change) -> bool:
    return change.only("metadata.seq", "metadata.cause")


def _drops_a_note(true: list[Line], forged: list[Line]) -> bool:
    """Whether notes are left out, and nothing else."""
    before, after = ([line for line in lines if line["event_type"] == "run_note"] for lines in (true, forged))
    return len(before) > len(after) and len(before) - len(after) == len(true) - len(forged)


CLASSES: tuple[Undetectable, ...] = (
    Undetectable(
        "error",
        "another text of an error",
        "words are free, those of the engine too; the end of a run repeats those of a failed step",
        _error,
    ),
    Undetectable(
        "category",
        "another category of a failed attempt",
        "only the handler knows it; retries and the end must fit it",
        _category,
    ),
    Undetectable(
        "actor",
        "another actor of a cause that no worker reports",
        "only the outside world knows who asked; a report must name the worker of its claim",
        _actor,
    ),
    Undetectable(
        "detail",
        "another comment, reason or wish of a handler",
        "it comes from outside and is recorded as it came; what follows from it is checked",
        _detail,
    ),
    Undetectable(
        "verdict",
        "a verdict of a live policy that visibly stops no step, left out, on another step or with other facts",
        "live rules are not in the log; policies replay and the evidence pack evaluate them again",
        _verdict,
    ),
    Undetectable(
        "output",
        "another digest of an input or output, or none of an output",
        "neither is in the log; certify compares them",
        _output,
        frozenset({"digest_of_another_input"}),
    ),
    Undetectable(
        "lease",
        "another lease, or deadline of a handler's wait",
        "a worker may take another lease than its definition names, and the handler chooses the deadline",
        _lease,
    ),
    Undetectable(
        "time",
        "another time between those of the lines around it",
        "a request, a sweep or a claim comes at any time from the moment it is due, and nothing is measured from it",
        _time,
        frozenset({"before_due"}),
    ),
    Undetectable(
        "cancel",
        "another wish for compensation of a cancel",
        "before the run starts and while it stops, both wishes lead to the same lines",
        _cancel,
    ),
    Undetectable(
        "split",
        "an entry split in two, or two causes exchanged",
        "one transaction with two causes and two transactions of the same time lead to the same run",
        _split,
        frozenset({"swap_moves", "step.without.seq", "run.without.seq"}),
    ),
    Undetectable(
        "tail",
        "everything after an entry cut off",
        "a run that goes on may be exported at any entry; this is its true older log",
        kinds=frozenset({"drop_tail"}),
    ),
    Undetectable(
        "format",
        "the definition said to be of another format",
        "a definition of another format that asks for the same leads to the same run",
        kinds=frozenset({"native_definition"}),
    ),
    Undetectable(
        "note",
        "a removed note",
        "a message that no step consumed changes nothing in the run",
        kinds=frozenset({"drop_run_line", "drop_move", "drop_entry"}),
        when=_drops_a_note,
    ),
)


def class_of(name: str, true: list[Line], forged: list[Line]) -> str | None:
    """The class of a forgery that was not found; None if it could have been found."""
    changes = list(_changes(true, forged)) if len(true) == len(forged) else []
    for one in CLASSES:
        if name in one.kinds and (one.when is None or one.when(true, forged)):
            return one.name
        if one.covers is not None and changes and all(one.covers(change) for change in changes):
            return one.name
    return None


def _changes(true: list[Line], forged: list[Line]) -> Iterator[Change]:
    for place, (before, after) in enumerate(zip(true, forged, strict=True)):
        fields = {name for name in before if name != "metadata" and before[name] != after.get(name)}
        said, told = before["metadata"], after["metadata"]
        fields |= {f"metadata.{name}" for name in {*said, *told} if said.get(name) != told.get(name)}
        if fields:
            yield Change(before, after, frozenset(fields), true, place)
