"""Why steps were skipped, from the journal: the reason of each skip, and a warning where a false condition cascaded.

Pure. It decides nothing: the kernel recorded the trigger of each skip and the step that caused it. `views` calls it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stepkeep.kernel.machine.journal import Hop
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import Plan
from stepkeep.operations.runs.causes import listed
from stepkeep.operations.runs.run_answers import Skip

BROKEN = StepTrigger.CONDITION_BROKEN
TOLERATED = {
    StepTrigger.FAILED_TOLERATED: "it failed, and its failure is tolerated",
    StepTrigger.RULES_FAILED_TOLERATED: "its result broke a rule, and its failure is tolerated",
    StepTrigger.DEADLINE_TOLERATED: "its deadline passed, and its failure is tolerated",
    StepTrigger.REJECTED_TOLERATED: "it was rejected, and its failure is tolerated",
    StepTrigger.COMPLETION_FAILED_TOLERATED: "it was completed as Failed, and its failure is tolerated",
    StepTrigger.CHILDREN_FAILED_TOLERATED: "its children failed, and its failure is tolerated",
    StepTrigger.OPERATOR_SKIPPED: "a person skipped it",
    StepTrigger.OPERATOR_FAILED_TOLERATED: "a person failed it, and its failure is tolerated",
    BROKEN: "its condition could not be evaluated, and its failure is tolerated",
}


def read_skips(plan: Plan, steps: Sequence[Step], hops: Iterable[Hop]) -> dict[int, Skip]:
    """The reason of every skipped step, by its number."""
    rows = {step.no: step for step in steps}
    return {hop.no: _skip(plan, rows, hop) for hop in hops if hop.no in rows and hop.target == StepState.SKIPPED}


def _skip(plan: Plan, rows: Mapping[int, Step], hop: Hop) -> Skip:
    condition = plan.at(hop.no).definition.condition
    if hop.trigger == StepTrigger.DEPENDENCY_UNMET and hop.of is not None:
        cause = plan.at(hop.of).name
        state = rows[hop.of].state.replace("_", " ") if hop.of in rows else "ended"
        return Skip(reason=hop.trigger, of=cause, text=f"it requires {cause}, which is {state}")
    if hop.trigger == StepTrigger.CONDITION_FALSE and hop.category is None:
        return Skip(reason=hop.trigger, condition=condition, text=f"its condition {condition} is false")
    if hop.trigger == StepTrigger.CONDITION_FALSE:
        return Skip(reason=BROKEN, condition=condition, text=TOLERATED[BROKEN])
    said = {str(trigger): text for trigger, text in TOLERATED.items()}
    return Skip(reason=hop.trigger, text=said.get(hop.trigger, hop.trigger.replace("_", " ")))


def cascades(plan: Plan, skips: Mapping[int, Skip]) -> list[str]:
    """One warning for each false condition that skipped more than its own step."""
    roots: dict[int, int] = {}
    behind: dict[int, list[str]] = defaultdict(list)
    for no in skips:  # in the order of the journal: a cause comes before its effect
        cause = skips[no].of
        before = None if cause is None else roots.get(plan.numbers[cause])
        roots[no] = no if before is None else before
        if before is not None and skips[before].reason == StepTrigger.CONDITION_FALSE:
            behind[before].append(plan.at(no).name)
    return [_warning(plan.at(root).name, skips[root], names) for root, names in behind.items()]


def _warning(name: str, skip: Skip, names: Sequence[str]) -> str:
    return f"{name}: {skip.text}, so {listed(names)} {'was' if len(names) == 1 else 'were'} skipped too"
