"""The state tables of the five seeds, typed from their texts: an oracle that shares nothing with the dialects' machines.

`EDGES` has every transition that a seed draws or lists, with the words of its trigger as the engine writes them, and
the facts of an ending that make those words true. What a seed lacks must be in the table of extensions of its page in
`docs/dialects/`. `wrong` compares a told story with all of it.
"""

# ruff: noqa: E501 - a table stays aligned, one line for each row

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.seeds.endings import Ending

PAGES = Path(__file__).parents[2] / "docs" / "dialects"
ALWAYS = ""


class Told(NamedTuple):
    """A transition as a dialect tells it. `is_seeds` says that its word is one of the seed."""

    kind: str
    noun: str
    name: str
    source: str | None
    target: str
    word: str
    is_seeds: bool


Edge = tuple[str | None, str]
Edges = dict[Edge, dict[str, str]]
"""The words of each edge, and for each the facts of which an ending must have one."""

# fmt: off
EDGES: dict[str, dict[str, Edges]] = {
    # Seed 000, sections 1 and 2.
    "ioa": {
        "run": {
            (None, "idle"):             {"Initial state after creation": ALWAYS},
            ("idle", "queued"):         {"Trigger event or manual start": ALWAYS},
            ("queued", "executing"):    {"Execution resources available": ALWAYS},
            ("executing", "blocked"):   {"Step requires external input": "approved refused late signalled"},
            ("executing", "completed"): {"All steps finished": ALWAYS},
            ("executing", "failed"):    {"Step failed + policy != compensate": "refused denied invalid invalid_before"},
            ("blocked", "executing"):   {"External input received": "approved refused signalled"},
            ("blocked", "failed"):      {"Timeout on blocked step": "late"},
        },
        "step": {
            (None, "pending"):          {"Dependencies not yet met": ALWAYS},
            ("pending", "running"):     {"Currently executing": ALWAYS},
            ("running", "completed"):   {"Finished successfully": ALWAYS},
            ("running", "failed"):      {"Execution failed": ALWAYS},
            ("running", "skipped"):     {"onFailure: skip": "left_out"},
        },
    },
    # Seed 001, run transitions and step transitions.
    "run": {
        "run": {
            (None, "PENDING"):                 {"POST /runs": ALWAYS},
            ("PENDING", "RUNNING"):            {"Worker claims first runnable step": ALWAYS},
            ("RUNNING", "WAITING_APPROVAL"):   {"Approval gate reached": "approved refused late"},
            ("WAITING_APPROVAL", "RUNNING"):   {"POST /runs/{id}/approve": "approved"},
            ("RUNNING", "SUCCEEDED"):          {"All steps are SUCCEEDED": ALWAYS},
            ("WAITING_APPROVAL", "SUCCEEDED"): {"Approval completes last pending gate": "last"},
            ("RUNNING", "FAILED"):             {"Step exhausts retries / terminal failure": ALWAYS},
            ("WAITING_APPROVAL", "FAILED"):    {"Failure on remaining execution after approval": "approved"},
        },
        "step": {
            (None, "PENDING"):                 {"Steps are created in template position order": ALWAYS},
            ("PENDING", "RUNNING"):            {"Worker claim": ALWAYS},
            ("RUNNING", "SUCCEEDED"):          {"Executor success": ALWAYS},
            ("RUNNING", "PENDING"):            {"Retryable failure and attempts remaining": "retried"},
            ("RUNNING", "FAILED"):             {"Attempts exhausted": "exhausted"},
            ("PENDING", "WAITING_APPROVAL"):   {"Tool stage completed, approval step opened": ALWAYS},
            ("WAITING_APPROVAL", "SUCCEEDED"): {"Approve endpoint": "approved"},
        },
    },
    # Seed 002, start flow, execution result handling, external event wake-up.
    "linear": {
        "run": {
            (None, "RUNNING"):          {"start": ALWAYS},
            ("RUNNING", "COMPLETED"):   {"Completed": ALWAYS},
            ("RUNNING", "FAILED"):      {"Dead": "refused late denied invalid invalid_before"},
        },
        "step": {
            (None, "PENDING"):          {"start": ALWAYS},
            ("PENDING", "READY"):       {"activate": ALWAYS},
            ("READY", "RUNNING"):       {"claim": ALWAYS},
            ("RUNNING", "DONE"):        {"Completed": ALWAYS},
            ("RUNNING", "DEAD"):        {"Dead": "dead"},
            ("WAITING", "READY"):       {"wake_up": "message"},
        },
    },
    # Seed 003, section 2 and 3.3; the transitions of RunV1.
    "action": {
        "run": {
            (None, "Pending"):                  {"created": ALWAYS},
            ("Pending", "Running"):             {"started": ALWAYS},
            ("Running", "Succeeded"):           {"succeeded": ALWAYS},
            ("Running", "Failed"):              {"failed": ALWAYS},
            ("Running", "Cancelled"):           {"cancelled": "all_left_out"},
            ("Running", "WaitingForApproval"):  {"approval_requested": "approved refused late"},
            ("WaitingForApproval", "Running"):  {"resumed": ALWAYS},
        },
        "step": {
            (None, "Pending"):                              {"planned": ALWAYS},
            ("Pending", "Running"):                         {"eligible": ALWAYS},
            ("Running", "Succeeded"):                       {"succeeded": ALWAYS},
            ("Running", "Failed"):                          {"failed": ALWAYS},
            ("Running", "WaitingForManualCompletion"):      {"completion_opened": "signalled late"},
            ("WaitingForManualCompletion", "Succeeded"):    {"succeeded": "signalled"},
            ("WaitingForManualCompletion", "Failed"):       {"failed": "signalled"},
            ("WaitingForManualCompletion", "Cancelled"):    {"cancelled": "signalled"},
        },
    },
    # Seed 004, Task Lifecycle and Workstream Lifecycle.
    "workstream": {
        "run": {
            (None, "planned"):           {"created": ALWAYS},
            ("planned", "ready"):        {"all_tasks_created": ALWAYS},
            ("ready", "executing"):      {"first_task_started": ALWAYS},
            ("executing", "validating"): {"all_tasks_completed": ALWAYS},
            ("executing", "failed"):     {"critical_task_failed": ALWAYS},
            ("validating", "completed"): {"validation_passed": ALWAYS},
            ("validating", "failed"):    {"validation_failed": "invalid_end"},
        },
        "step": {
            (None, "pending"):           {"created": ALWAYS},
            ("pending", "queued"):       {"scheduler_assigned": ALWAYS},
            ("queued", "running"):       {"worker_started": ALWAYS},
            ("running", "validating"):   {"execution_completed": ALWAYS},
            ("running", "retrying"):     {"execution_failed": "retried"},
            ("running", "failed"):       {"execution_failed": "exhausted"},
            ("running", "cancelled"):    {"user_cancelled": "signalled"},
            ("retrying", "queued"):      {"retry_delay_elapsed": "retried"},
            ("validating", "completed"): {"validation_passed": ALWAYS},
            ("validating", "failed"):    {"validation_failed": "invalid"},
        },
    },
}

RUN_ENDS = {
    "ioa":        {"succeeded": "completed", "failed": "failed"},
    "run":        {"succeeded": "SUCCEEDED", "failed": "FAILED"},
    "linear":     {"succeeded": "COMPLETED", "failed": "FAILED"},
    "action":     {"succeeded": "Succeeded", "failed": "Failed"},
    "workstream": {"succeeded": "completed", "failed": "failed"},
}
STEP_ENDS = {
    "ioa":        {"succeeded": "completed", "failed": "failed", "skipped": "skipped",   "cancelled": "cancelled"},
    "run":        {"succeeded": "SUCCEEDED", "failed": "FAILED", "skipped": "SKIPPED",   "cancelled": "CANCELED"},
    "linear":     {"succeeded": "DONE",      "failed": "DEAD",   "skipped": "SKIPPED",   "cancelled": "CANCELED"},
    "action":     {"succeeded": "Succeeded", "failed": "Failed", "skipped": "Cancelled", "cancelled": "Cancelled"},
    "workstream": {"succeeded": "completed", "failed": "failed", "skipped": "cancelled", "cancelled": "cancelled"},
}
"""The words for endings. Seeds 001 and 002 have none for a step that is left out; 000 and 002 none for a cancelled one."""

WAITS: dict[str, dict[str, tuple[str, str] | None]] = {
    "ioa":        {"approval": ("run", "blocked"),             "completion": ("run", "blocked")},
    "run":        {"approval": ("step", "WAITING_APPROVAL"),   "completion": None},
    "linear":     {"approval": ("step", "WAITING"),            "completion": ("step", "WAITING")},
    "action":     {"approval": ("run", "WaitingForApproval"),  "completion": ("step", "WaitingForManualCompletion")},
    "workstream": {"approval": None,                           "completion": None},
}
"""The state in which each seed shows that a person is waited for; None where it has no such state."""
# fmt: on


def wrong(dialect: str, ending: Ending, story: Iterable[Told]) -> Iterator[str]:
    """Everything in a told story that contradicts the tables of its seed, in sentences."""
    told, step, run = list(story), STEP_ENDS[dialect], RUN_ENDS[dialect]
    at: dict[tuple[str, str], str] = {}
    for one in told:
        said = f"{one.kind} {one.name}: {one.source} → {one.target} ({one.word})"
        if at.get((one.kind, one.name)) != one.source:
            yield f"{said}: it was {at.get((one.kind, one.name))}"
        ended = {*run.values(), "Cancelled"} if one.kind == "run" else set(step.values())
        if one.source in ended:
            yield f"{said}: {one.source} is terminal"
        at[one.kind, one.name] = one.target
        words = EDGES[dialect][one.kind].get((one.source, one.target), {})
        if one.is_seeds and one.word not in words:
            yield f"{said}: the seed has no such trigger on this edge"
        elif one.is_seeds and words[one.word] and not {*words[one.word].split()} & {*ending.facts.split()}:
            yield f"{said}: that is not why it happened ({ending.facts})"
        elif not one.is_seeds and (one.noun, one.source, one.target) not in listed(dialect):
            yield f"{said}: neither the seed nor docs/dialects/{dialect}.md has this edge"
    if at.get(("step", "x")) != step[ending.step]:
        yield f"the step ends {at.get(('step', 'x'))}, expected {step[ending.step]}"
    expected = run[ending.run]
    if dialect == "action" and "all_left_out" in ending.facts.split():
        expected = "Cancelled"  # RunV1: a run of which no action Succeeded has not Succeeded
    if last(told, "run") != expected:
        yield f"the run ends {last(told, 'run')}, expected {expected}"
    shown = WAITS[dialect][ending.waits] if ending.waits else None
    if shown is not None and shown not in {(one.kind, one.target) for one in told}:
        yield f"nothing shows that a person is waited for: no {shown[0]} is {shown[1]}"


def last(told: list[Told], kind: str) -> str | None:
    return next((one.target for one in reversed(told) if one.kind == kind), None)


_LISTED: dict[str, set[tuple[str, str | None, str]]] = {}


def listed(dialect: str) -> set[tuple[str, str | None, str]]:
    """The extensions on the page of a dialect: machine, from, to."""
    if dialect not in _LISTED:
        page = (PAGES / f"{dialect}.md").read_text()
        table = page[page.index("| machine | from | to |") :].partition("\n\n")[0]
        rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()[2:]]
        _LISTED[dialect] = {(row[0], None if row[1] == "(new)" else row[1], row[2]) for row in rows}
    return _LISTED[dialect]
