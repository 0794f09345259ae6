"""Invariants of the journal of one run: every hop is legal, and the hops fold to the rows.

A fold begins with a new run, or with the rows of a run in the middle of its journal. Must not use the kernel's
decisions or its own checks; the state tables are read as data. The kernel tests, the model checker, the simulator and
torture use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Self

from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry, Hop
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, OnFailure, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import RUN, STEP, StepTrigger
from stepkeep.kernel.plan import Plan
from stepkeep.operations.remote.recorded_calls import JournaledCalls
from stepkeep_lab.invariants.rows import BEFORE_STOPPING, Rows, hooked, is_open
from stepkeep_lab.invariants.violation import must

Arrow = tuple[str, str | None, str]
"""Machine, source state and trigger."""

LEGAL: dict[Arrow, str] = {
    **{("run", row.source, row.trigger): row.target for row in RUN.rows},
    **{("step", row.source, row.trigger): row.target for row in STEP.rows},
}
OPENING = frozenset(
    {
        StepTrigger.DEPENDENCIES_MET,
        StepTrigger.GATE_OPENED,
        StepTrigger.HELD,
        StepTrigger.WAIT_OPENED,
        StepTrigger.CLAIMED,
    }
)
REFUSALS = ('"decision":"rejected"', '"decision":"expired"')
FOLDS = "I9 the log folds to the rows"
UNDO = "I7 completed steps are undone, last first"


class JournalFold:
    """The states of one run, entry by entry.

    `claims` are pairs of step number and fence. `opened` are undo steps in the order in which they opened.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.planned = JournaledCalls(plan)
        self.seq = 0
        self.states: dict[int, str] = {}
        self.fences: dict[int, int] = {}
        self.claims: set[tuple[int, int]] = set()
        self.refused: set[int] = set()
        self.opened: list[int] = []
        self.failed_on = 0
        self.stopped = False
        self._entered: dict[int, tuple[int, int]] = {}

    @classmethod
    def at(cls, plan: Plan, run: Run, rows: Rows) -> Self:
        """A fold of the entries that follow these rows. The claims that ended before are not known to it."""
        fold = cls(plan)
        fold.seq, fold.failed_on = run.seq, run.failed
        fold.states = {no: row.state for no, row in rows.items()}
        fold.states[RUN_ENTITY] = run.state
        for no, row in rows.items():
            if row.fence:
                fold.fences[no] = row.fence
            if is_open(row):
                fold.claims.add((no, row.fence))
            if row.note is not None and row.note.record is not None:
                record = row.note.record
                if any(refusal in record for refusal in REFUSALS):
                    fold.refused.add(no)
        fold.planned.know(rows.values())
        fold.stopped = run.state in (RunState.STOPPING, RunState.COMPENSATING)
        if run.state is RunState.COMPENSATING:
            order = (plan.undo_no(row.no) for row in hooked(plan, rows))
            fold.opened = [no for no in order if no in rows and rows[no].state is not StepState.PENDING]
        return fold

    def take(self, entry: Entry) -> list[Arrow]:
        """Fold one entry; returns the arrows of the tables that it took. I4, I9, I10 and I15."""
        must(entry.seq == self.seq + 1, "I9 gapless journal", "entry {} follows {}", entry.seq, self.seq)
        self.seq = entry.seq
        arrows: list[Arrow] = []
        for hop in entry.hops:
            arrow = ("run" if hop.no == RUN_ENTITY else "step", hop.source, hop.trigger)
            source = self.states.get(hop.no)
            must(hop.source == source, FOLDS, "{} of {} starts elsewhere than {}", hop, entry.run_id, source)
            must(LEGAL.get(arrow) == hop.target, "I15 transitions only from the table", "{}", hop)
            must(0 <= hop.by < len(entry.causes), FOLDS, "{} has no cause", hop)
            if hop.trigger == StepTrigger.RULES_PASSED:
                self._rules_were_evaluated(hop, entry)
            if hop.no != RUN_ENTITY:
                self.planned.consume(hop, entry.causes[hop.by])
                self._take_step(hop)
            elif hop.target == RunState.STOPPING:
                self.stopped = True
            self.states[hop.no], self._entered[hop.no] = hop.target, (entry.seq, hop.by)
            arrows.append(arrow)
        return arrows

    def _take_step(self, hop: Hop) -> None:
        planned, run = self.planned.at(hop.no), self.states[RUN_ENTITY]
        if hop.trigger in OPENING and hop.source != StepState.VALIDATING:
            self._may_open(hop)
        if hop.trigger == StepTrigger.CLAIMED:
            fence = self.fences[hop.no] = self.fences.get(hop.no, 0) + 1
            must(hop.fence == fence, "I3 fences grow by one", "step {}: {}, not {}", hop.no, hop.fence, fence)
            self.claims.add((hop.no, fence))
        is_chosen = hop.trigger.startswith("operator_") or hop.trigger == StepTrigger.DEADLINE_SKIPPED
        is_end = hop.target in (StepState.FAILED, StepState.SKIPPED) and not is_chosen
        if hop.source == StepState.AWAITING_APPROVAL and is_end:
            self.refused.add(hop.no)
        opens = (StepTrigger.DEPENDENCIES_MET, StepTrigger.CHILDREN_STARTED)
        if hop.trigger in opens and planned.phase is Phase.UNDO:
            self.opened.append(hop.no)
        goes_on = planned.on_failure is OnFailure.CONTINUE and planned.owner is None
        if hop.target == StepState.FAILED and planned.phase is Phase.MAIN and goes_on:
            self.failed_on += run in BEFORE_STOPPING

    def _may_open(self, hop: Hop) -> None:
        """I4: a step that opens or is claimed has every dependency settled as its edge allows, and none refused."""
        planned, name = self.planned.at(hop.no), "I4 dependencies first"
        claimed = hop.trigger == StepTrigger.CLAIMED
        is_worked = planned.kind.grows_by_report
        is_work = planned.executor is not None and (planned.segment is None or is_worked)
        must(is_work or not claimed, name, "{} is a gate, a wait or an owner and was claimed", planned.name)
        if planned.phase is not Phase.MAIN:
            return
        for edge in planned.definition.depends_on:
            other = self.plan.numbers[edge.step]
            ended = self.states.get(other)
            must(ended in edge.allow, name, "{} opens while {} is {}", planned.name, edge.step, ended)
            must(other not in self.refused, name, "{} opens, and {} was refused", planned.name, edge.step)

    def _rules_were_evaluated(self, hop: Hop, entry: Entry) -> None:
        """A step with rules succeeds only after they were evaluated, which takes an event of its own."""
        if hop.no == RUN_ENTITY:
            check = self.plan.check
            evaluated = check is None or self.states.get(check.no) == StepState.SUCCEEDED
        else:
            planned = self.planned.at(hop.no)
            has_rules = planned.has_rules and planned.phase is Phase.MAIN
            evaluated = not has_rules or self._entered.get(hop.no) != (entry.seq, hop.by)
        must(evaluated, "rules are evaluated", "{} of {} passed its rules unevaluated", hop, entry.run_id)

    def check(self, run: Run, rows: Rows, ended: Collection[tuple[int, int]]) -> None:
        """Raise if the rows are not what the journal says. `ended` are the claims that have an attempt."""
        states: dict[int, str] = {no: row.state for no, row in rows.items()}
        states[RUN_ENTITY] = run.state
        must(states == self.states, FOLDS, "run {}: rows {}, journal {}", run.id, states, self.states)
        must(run.seq == self.seq, "I9 gapless journal", "run {} is at {}, its journal at {}", run.id, run.seq, self.seq)
        must(run.failed == self.failed_on, FOLDS, "{} steps failed, not {}", self.failed_on, run.failed)
        fences = {no: row.fence for no, row in rows.items() if row.fence}
        must(fences == self.fences, FOLDS, "run {} has fences {}, not {}", run.id, fences, self.fences)
        held = {(no, row.fence) for no, row in rows.items() if is_open(row)}
        accounted = self.claims == held.union(ended) and held.isdisjoint(ended)
        must(
            accounted, "I2 one outcome per claim", "{}: ended {}, held {}, claims {}", run.id, ended, held, self.claims
        )
        if self.opened or self.stopped:
            self._undo_in_order(run, rows)

    def _undo_in_order(self, run: Run, rows: Rows) -> None:
        """I7: undo steps open one by one, last completed first; and a run that had to undo something did."""
        expected = hooked(self.plan, rows)
        order = [self.plan.undo_no(row.no) for row in expected]
        must(self.opened == order[: len(self.opened)], UNDO, "{} opened {}, not {}", run.id, self.opened, order)
        settled = all(rows[no].state in STEP_TERMINAL for no in self.opened[:-1])
        must(settled, UNDO, "{} runs two undo steps at once", run.id)
        if run.state in RUN_TERMINAL and self.stopped and expected:
            always = run.cause is not None and self.plan.definition.compensate_always
            wanted = run.policy is OnFailure.COMPENSATE or always
            undone = all(no in rows for no in order)
            must(undone or not wanted, UNDO, "{} ended {} without undoing what it did", run.id, run.state)


def fold_of(plan: Plan, entries: Iterable[Entry]) -> JournalFold:
    """The fold of a whole journal."""
    fold = JournalFold(plan)
    for entry in entries:
        fold.take(entry)
    return fold
