"""Judges a tree of runs: the verdict about each run, and what the journals of parents and children say of each other.

It reads logs alone. Each run is certified by itself; here its journal is compared with that of its parent. `evidence/`
collects the logs and calls it; it must not read a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.conformance.adoption import ROLLBACK, is_continuation
from stepkeep.conformance.report import Code, Finding, quoted

Doc = Mapping[str, Any]


class TreeRun(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one run of a tree. `undoes` is the run that it rolls back; `findings` counts what is wrong."""

    run: str
    parent: str
    step: str
    state: str
    head: str
    entries: int
    ok: bool
    findings: int
    undoes: str | None = None


class TreeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The runs below a run, how many links between two journals were compared, and what they contradict.

    `missing` are children that are no longer kept.
    """

    runs: tuple[TreeRun, ...]
    compared: int
    missing: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings and all(run.ok for run in self.runs)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a tree may spend and has spent: the limits of a budget that stops it, and for each ended attempt
    its end and its cost. `is_whole`: the costs of all runs below it are known too."""

    limits: Mapping[str, float] = {}
    costs: tuple[tuple[int, Mapping[str, float]], ...] = ()
    is_whole: bool = True


SLACK_US = 10_000_000
"""How much later than the moment of a decision an attempt may have ended whose cost it has read: the moment is read
before the costs, and by another transaction."""


def judge_tree(
    runs: Sequence[TreeRun],
    logs: Mapping[str, Sequence[Doc]],
    missing: Sequence[str],
    spending: Mapping[str, Spending] | None = None,
) -> TreeVerdict:
    """The verdict about a tree. `logs` has the canonical lines of every run in it, the first run included."""
    findings: list[Finding] = []
    budgets = _Budgets(runs, spending or {})
    for one in runs:
        told = _ChildEnding(one.run, logs[one.run])
        wrong = [*_contradictions(one, told, logs.get(one.parent, ()), logs), *budgets.wrong(one.run, logs[one.run])]
        findings += [Finding(1, Code.CHILD, one.run, said) for said in wrong]
    return TreeVerdict(runs=tuple(runs), compared=len(runs), missing=tuple(sorted(missing)), findings=tuple(findings))


class _Budgets:
    """The budgets of the runs of a tree, and what the trees below them had spent at a moment."""

    def __init__(self, runs: Sequence[TreeRun], spending: Mapping[str, Spending]) -> None:
        self._parents, self._spending = {one.run: one.parent for one in runs}, spending

    def wrong(self, run: str, lines: Sequence[Doc]) -> Iterator[str]:
        """What denials of steps by a run above contradict: its place in the tree, its definition and what was spent."""
        for line in lines:
            detail, at = line["metadata"].get("detail"), line["metadata"].get("at")
            verdicts = detail.get("policy") if isinstance(detail, dict) else None
            for step, verdict in verdicts.items() if isinstance(verdicts, dict) else ():
                if isinstance(verdict, dict) and verdict.get("by") == "parent" and isinstance(at, int):
                    yield from self._denial(run, step, verdict, at)

    def _denial(self, run: str, step: str, verdict: Doc, at: int) -> Iterator[str]:
        above, name = str(verdict.get("run")), str(verdict.get("rule")).removeprefix("budget:")
        said = f"step {quoted(step)} is denied by the budget {quoted(name)} of run {above}"
        if above not in self._above(run):
            # A run above the first one of this tree is not here to be compared.
            if above in self._parents:
                yield f"{said}, which is not above it"
            return
        known = self._spending.get(above)
        if known is None:
            return
        spent, limit = verdict.get("spent"), verdict.get("limit")
        if known.limits.get(name) != limit:
            yield f"{said} with the limit {quoted(limit)}, and its definition has {quoted(known.limits.get(name))}"
        below = [run_id for run_id in self._spending if run_id == above or above in self._above(run_id)]
        on_record = self._spent(below, name, at + SLACK_US)
        is_whole = all(self._spending[run_id].is_whole for run_id in below)
        if is_whole and isinstance(spent, int | float) and spent > on_record * (1 + 1e-9):
            yield f"{said} after {spent:g} were spent, and {on_record:g} are on record for that time"

    def _above(self, run: str) -> list[str]:
        found = []
        while (run := self._parents.get(run, "")) and run not in found:
            found.append(run)
        return found

    def _spent(self, below: Sequence[str], name: str, until: int) -> float:
        costs = [cost for run in below for at, cost in self._spending[run].costs if at <= until]
        return float(len(costs)) if name == "attempts" else sum(cost.get(name, 0.0) for cost in costs)


class _ChildEnding:
    """What the journal of a child says about itself."""

    def __init__(self, run: str, lines: Sequence[Doc]) -> None:
        own = [line for line in lines if line.get("event_type") == "run_state_transition"]
        first = own[0]["metadata"] if own else {}
        self.actor = first.get("actor")
        detail = first.get("detail") if isinstance(first.get("detail"), dict) else {}
        continues: Any = (detail or {}).get("continues")
        self.continues: Mapping[str, Any] = continues if is_continuation(continues) else {}
        self.state = own[-1]["to_state"] if own else None
        self.is_partial = bool(own) and own[-1].get("trigger") == "undo_failed"
        self.ended_at = own[-1]["metadata"].get("at") if own else None


def _contradictions(
    one: TreeRun, told: _ChildEnding, parent: Sequence[Doc], logs: Mapping[str, Sequence[Doc]]
) -> Iterator[str]:
    if told.actor != f"parent:{one.parent}":
        yield f"its journal says that {quoted(told.actor)} created it, and it is a child of run {one.parent}"
    for line in _news(parent, one.run):
        said, at = line["metadata"]["detail"], line["metadata"].get("at")
        step, state = said.get("step"), said.get("state")
        if step != one.step:
            yield f"its parent hears of it at step {quoted(step)}, and it is the child of {quoted(one.step)}"
        if state != told.state:
            yield f"its parent hears that it ended {quoted(state)}, and its journal ends {quoted(told.state)}"
        if told.is_partial and said.get("partial") is not True:
            yield "its parent does not hear that something of what it did remains, and its rollback was partial"
        if isinstance(at, int) and isinstance(told.ended_at, int) and at < told.ended_at:
            yield f"its parent hears of its end at {at}, before it ended at {told.ended_at}"
    if one.undoes is not None or told.continues.get("as") == ROLLBACK:
        yield from _rollback(one, told, parent, logs)


def _rollback(
    one: TreeRun, told: _ChildEnding, parent: Sequence[Doc], logs: Mapping[str, Sequence[Doc]]
) -> Iterator[str]:
    """A rollback run undoes the child of the step that its own step undoes, and all that this child finished."""
    undoes = told.continues.get("run")
    if told.continues.get("as") != ROLLBACK or undoes != one.undoes:
        yield f"its journal says that it goes on with run {quoted(undoes)}, and it rolls run {quoted(one.undoes)} back"
        return
    undone = one.step.removeprefix("undo:")
    heard = {
        line["metadata"]["detail"].get("child")
        for line in _all_news(parent)
        if line["metadata"]["detail"].get("step") == undone
    }
    if heard and undoes not in heard:
        yield f"it rolls run {quoted(undoes)} back, and the child of {quoted(undone)} was another one"
    adopted = {item.get("its_step", item["step"]) for item in told.continues.get("adopted", ())}
    ended = {
        line["metadata"].get("step")
        for line in logs.get(str(undoes), ())
        if line.get("event_type") == "step_state_transition" and line["to_state"] == "succeeded"
    }
    for name in sorted(step for step in ended if isinstance(step, str) and _is_own(step)):
        if name not in adopted:
            yield f"run {undoes} finished step {quoted(name)}, and its rollback does not take it"


def _is_own(step: str) -> bool:
    """Whether a step of the definition; elements are taken only if they left something."""
    return not step.startswith(("undo:", "check:")) and not step.endswith("]")


def _all_news(lines: Sequence[Doc]) -> Iterator[Doc]:
    """The lines that have the detail of a `child_ended`."""
    for line in lines:
        said = line["metadata"]
        if said.get("event") == "child_ended" and isinstance(said.get("detail"), dict):
            yield line


def _news(lines: Sequence[Doc], child: str) -> Iterator[Doc]:
    return (line for line in _all_news(lines) if line["metadata"]["detail"].get("child") == child)
