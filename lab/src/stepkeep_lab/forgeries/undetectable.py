"""The classes of forgeries that no reader of a log can detect once the chain is recomputed, each with its reason.

A class covers single changes, not whole kinds: a missed forgery counts as undetectable only if its change is of such a
class. A kept or signed head detects all of them. A test compares the classes with the table in `docs/conformance.md`.
`campaign.py` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Line = dict[str, Any]
DIALECTS = frozenset({"ioa", "run", "linear", "action", "workstream"})
HIDING = frozenset({"ioa", "action"})
"""Dialects that show neither claims nor releases."""

FAILING = frozenset({"failed", "failed_tolerated", "retry_scheduled", "cancelled"})
WORDED_OUTSIDE = frozenset({"completion_failed", "completion_failed_tolerated", "condition_broken", "condition_false"})
"""Causes besides a report whose error ends in words that are not the engine's."""

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


Covers = Callable[[str, Change], bool]
"""Whether a change in a log of these words is of a class."""


class Undetectable(NamedTuple):
    """A class: its name, what is forged, in which logs, why the log alone cannot show it, and the test for a change.

    Without such a test it names whole kinds, which remove or move lines; `when` tests the true and the forged log.
    """

    name: str
    what: str
    words: frozenset[str] | None
    reason: str
    covers: Covers | None = None
    kinds: frozenset[str] = frozenset()
    when: Callable[[list[Line], list[Line]], bool] | None = None


# -- tests for one change --------------------------------------------------------------------------------------------
def _error(words: str, change: Change) -> bool:
    before, after = change.metadata("error")
    is_free = change.before["metadata"].get("event") == "step_reported" or change.because in WORDED_OUTSIDE
    return change.only("metadata.error") and bool(before) and bool(after) and is_free


def _actor(words: str, change: Change) -> bool:
    event = change.before["metadata"].get("event")
    return change.only("metadata.actor", "metadata.worker") and (event != "step_reported" or words in HIDING)


def _detail(words: str, change: Change) -> bool:
    before, after = change.metadata("detail")
    if not change.only("metadata.detail") or not isinstance(before, dict):
        return False
    after = after if isinstance(after, dict) else {}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    free = FREE | ({"name"} if words in DIALECTS and change.because == "message_arrived" else set())
    return changed <= free or change.before["metadata"].get("event") == "run_created"


def _verdict(words: str, change: Change) -> bool:
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
    return all(said.get("by") != "definition" and _goes_on(words, said) for said in changed)


def _goes_on(words: str, verdict: dict[str, Any]) -> bool:
    """Whether a step goes on after a verdict, as far as these words show: a hold without terms holds nothing, because
    the step is a gate or was approved before."""
    holds_nothing = verdict.get("effect") == "hold" and ("terms" not in verdict or words == "workstream")
    return verdict.get("effect") == "allow" or holds_nothing


def _category(words: str, change: Change) -> bool:
    before, after = change.metadata("category")
    return change.only("metadata.category", "severity") and bool(before and after) and change.because in FAILING


def _output(words: str, change: Change) -> bool:
    return change.only("metadata.digest") and change.because not in ("gate_opened", "held")


def _lease(words: str, change: Change) -> bool:
    return change.only("metadata.due_at") and change.because in ("claimed", "completed", "waited")


def _head(words: str, change: Change) -> bool:
    return change.only("metadata.head")


def _canonical(words: str, change: Change) -> bool:
    ended = {"succeeded", "failed", "cancelled", "rolled_back"}
    return change.only("metadata.canonical") and not ended & set(change.metadata("canonical"))


def _hop(words: str, change: Change) -> bool:
    return change.only("metadata.hop")


def _claims(words: str, change: Change) -> bool:
    counted = ("metadata.fence", "metadata.attempt", "metadata.retry_count", "metadata.duration_seconds")
    return change.only(*counted)


def _handed_back(words: str, change: Change) -> bool:
    _, after = change.metadata("duration_seconds")
    return change.only("metadata.duration_seconds") and after is None and change.because == "cancelled"


def _time(words: str, change: Change) -> bool:
    """A time between those of the lines around it, and not before the timer that the log names for its step."""
    before, at = change.metadata("at")
    if not change.only("metadata.at", "timestamp") or type(at) is not int or type(before) is not int:
        return False
    is_measured = change.before["metadata"].get("event") == "step_reported" and change.because != "completed"
    if is_measured and words not in HIDING:
        return False
    earliest, latest = (line["metadata"]["at"] for line in change.around)
    return bool(max(earliest, _timer(words, change)) <= at <= latest)


def _timer(words: str, change: Change) -> int:
    """When the step was due by its line before; a dialect may hide the wait whose deadline passes."""
    step = change.before["metadata"].get("step")
    if step is None or (words != "canonical" and change.because.startswith("deadline")):
        return 0
    lines = [line["metadata"] for line in change.earlier if line["metadata"].get("step") == step]
    due_at = lines[-1].get("due_at", 0) if lines else 0
    return int(due_at) if due_at <= change.before["metadata"]["at"] else 0


def _cancel(words: str, change: Change) -> bool:
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


def _ground(words: str, change: Change) -> bool:
    """The ground of a run that goes on, of a claim after hidden claims, or of a cancelled step before the run's end."""
    values = set(change.metadata("ground"))
    if not change.only("metadata.ground"):
        return False
    if "step" not in change.before["metadata"]:
        return "of" in change.before["metadata"] and values <= {None, "approved", "deadline", "input"}
    if change.because == "claimed":
        return values == {None, "reclaimed"}
    is_open = change.log[-1]["metadata"]["canonical"] in ("stopping", "compensating")
    return is_open and values <= {"run_cancelled", "run_failed", "run_timed_out"}


def _step(words: str, change: Change) -> bool:
    return change.only("metadata.of") and "step" not in change.before["metadata"]


def _split(words: str, change: Change) -> bool:
    return change.only("metadata.seq", "metadata.cause")


def _drops_a_note(true: list[Line], forged: list[Line]) -> bool:
    """Whether notes are left out, and nothing else."""
    before, after = ([line for line in lines if line["event_type"] == "run_note"] for lines in (true, forged))
    return len(before) > len(after) and len(before) - len(after) == len(true) - len(forged)


def _times_a_worker_out(true: list[Line], forged: list[Line]) -> bool:
    """Whether the lines that come earlier are about leases and waits of handlers, whose length the worker chooses."""
    written = {step["name"]: step for step in true[0]["metadata"]["definition"]["steps"]}
    moved = [one["metadata"] for one, other in zip(true, forged, strict=True) if one != other]
    steps = [written.get(said["step"], {}) for said in moved if said.get("event") == "time_came" and "step" in said]
    return not any(step.get("approval") or step.get("wait") or step.get("completion") == "manual" for step in steps)


NO_CHAIN_OF_OWN = "a dialect's log does not hold the canonical journal; certify compares both"
CLASSES: tuple[Undetectable, ...] = (
    Undetectable(
        "error",
        "another text of an error",
        None,
        "only the handler knows its words; a run's end must repeat them, and the engine's own words are checked",
        _error,
    ),
    Undetectable(
        "category",
        "another category of a failed attempt",
        None,
        "only the handler knows it; retries and the end must fit it",
        _category,
    ),
    Undetectable(
        "actor",
        "another actor of a cause that no worker reports",
        None,
        "only the outside world knows who asked; a report must name the worker of its claim",
        _actor,
    ),
    Undetectable(
        "detail",
        "another comment, reason or wish of a handler",
        None,
        "it comes from outside and is recorded as it came; what follows from it is checked",
        _detail,
    ),
    Undetectable(
        "verdict",
        "a verdict of a live policy that visibly stops no step, left out, on another step or with other facts",
        None,
        "live rules are not in the log; policy replay and the evidence pack evaluate them again",
        _verdict,
    ),
    Undetectable(
        "output",
        "another digest of an output, or none",
        None,
        "the output is not in the log; certify compares it",
        _output,
    ),
    Undetectable(
        "lease",
        "another lease, or deadline of a handler's wait",
        None,
        "the worker chooses the lease, and the handler the deadline; no definition limits them",
        _lease,
    ),
    Undetectable("head", "another journal head on the closing line", DIALECTS, NO_CHAIN_OF_OWN, _head),
    Undetectable(
        "canonical",
        "another canonical state of an unfinished run",
        DIALECTS,
        "several canonical states show as one state of a dialect",
        _canonical,
    ),
    Undetectable(
        "hop",
        "another `hop`",
        DIALECTS,
        "the dialect hides hops, and the log does not tell how many an entry has",
        _hop,
    ),
    Undetectable(
        "claims",
        "another fence, attempt or duration",
        HIDING,
        "the dialect hides claims that were lost or released, so their number is unknown",
        _claims,
    ),
    Undetectable(
        "handed-back",
        "no duration of a cancelled step",
        DIALECTS,
        "the dialect hides that a worker handed the step back while its rules were to run",
        _handed_back,
    ),
    Undetectable(
        "time",
        "another time between those of the lines around it",
        None,
        "a request or a sweep comes at any time from the moment its timer is due, and nothing is measured from it",
        _time,
    ),
    Undetectable(
        "cancel",
        "another wish for compensation of a cancel",
        None,
        "before the run starts and while it stops, both wishes lead to the same lines",
        _cancel,
    ),
    Undetectable(
        "ground",
        "another ground of a claim, of a cancelled step, or of a run that goes on",
        DIALECTS,
        "the dialect hides the lost lease, the stop or the end of a wait that the ground names",
        _ground,
    ),
    Undetectable(
        "step",
        "another step that the run's line names",
        frozenset({"ioa", "run"}),
        "the dialect hides the hop of the step, and another step could have made it",
        _step,
    ),
    Undetectable(
        "split",
        "an entry split in two, or two causes exchanged",
        None,
        "one transaction with two causes and two transactions of the same time lead to the same run",
        _split,
        frozenset({"swap_moves", "step.without.seq", "run.without.seq"}),
    ),
    Undetectable(
        "tail",
        "everything after an entry cut off",
        None,
        "a run that goes on may be exported at any entry; this is its true older log",
        kinds=frozenset({"drop_tail"}),
    ),
    Undetectable(
        "format",
        "the definition said to be of another format",
        None,
        "a definition of another format that asks for the same leads to the same run",
        kinds=frozenset({"native_definition"}),
    ),
    Undetectable(
        "ready",
        "an earlier claim",
        None,
        "a step may be claimed at any time from the moment it is ready",
        kinds=frozenset({"before_due"}),
    ),
    Undetectable(
        "wait",
        "an early timeout of a handler's wait",
        DIALECTS,
        "the dialect hides the wait and its deadline",
        kinds=frozenset({"timeout_before_deadline"}),
        when=_times_a_worker_out,
    ),
    Undetectable(
        "note",
        "a removed note",
        frozenset({"canonical"}),
        "a message that no step consumed changes nothing in the run",
        kinds=frozenset({"drop_run_line", "drop_move", "drop_entry"}),
        when=_drops_a_note,
    ),
    Undetectable(
        "input",
        "another digest of the input",
        None,
        "the input is not in the log; certify compares the digest with it",
        kinds=frozenset({"digest_of_another_input"}),
    ),
    Undetectable(
        "story",
        "a tolerated failure told as success, all of it",
        HIDING,
        "a story that the machine could have lived is a legal story",
        kinds=frozenset({"failure_told_as_success"}),
    ),
)


def class_of(name: str, words: str, true: list[Line], forged: list[Line]) -> str | None:
    """The class of a forgery that was not found; None if it could have been found."""
    changes = list(_changes(true, forged)) if len(true) == len(forged) else []
    for one in CLASSES:
        if one.words is not None and words not in one.words:
            continue
        if name in one.kinds and (one.when is None or one.when(true, forged)):
            return one.name
        if one.covers is not None and changes and all(one.covers(words, change) for change in changes):
            return one.name
    return None


def _changes(true: list[Line], forged: list[Line]) -> Iterator[Change]:
    for place, (before, after) in enumerate(zip(true, forged, strict=True)):
        fields = {name for name in before if name != "metadata" and before[name] != after.get(name)}
        said, told = before["metadata"], after["metadata"]
        fields |= {f"metadata.{name}" for name in {*said, *told} if said.get(name) != told.get(name)}
        if fields:
            yield Change(before, after, frozenset(fields), true, place)
