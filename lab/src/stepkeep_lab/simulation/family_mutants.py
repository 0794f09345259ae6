"""Planted bugs of trees of runs: how children are started, told about, called back and rolled back.

Data like `mutants`, which has them among its own.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

FAMILY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "partial-rollback-whole",
        "the rollback of a child that left something counts as whole",
        (Edit("kernel.composition.children:_end_hook", " and not event.partial", ""),),
    ),
    Mutant(
        "rollback-owns-nothing",
        "the rollback of a child undoes none of its steps",
        (
            Edit(
                "operations.children.child_rollback:_continuation",
                "owned=row.no in undone or (row.no in remains and why is None)",
                "owned=False",
            ),
        ),
    ),
    Mutant(
        "rollback-forgets-the-last",
        "the rollback of a child leaves the step out that was completed last",
        (Edit("operations.children.child_rollback:_continuation", "enumerate(rows)", "enumerate(rows[:-1])"),),
    ),
    Mutant(
        "child-end-unnoted",
        "the transaction that ends a child does not note its end for the parent",
        (Edit("operations.pipeline.batch:notices_of", "not is_child(run.id)", "is_child(run.id)"),),
    ),
    Mutant(
        "child-not-called-back",
        "a run that stops does not call its live children back",
        (Edit("kernel.composition.child_runs:recall", "not awaits_child(draft, step)", "awaits_child(draft, step)"),),
    ),
    Mutant(
        "stopped-map-forgets-its-children",
        "a map that stops early does not wait for the children that it called back",
        (
            Edit(
                "kernel.composition.elements:_stop",
                "draft.put(replace(row, due_at=None))\n            left += 1",
                "left += 0",
            ),
        ),
    ),
    Mutant(
        "late-map-is-certain",
        "a map that waits for its children no longer does not say that their effects are in doubt",
        (Edit("kernel.composition.elements:cancel_element", ", error=CHILD_IN_DOUBT", ""),),
    ),
    Mutant(
        "map-children-fenced-by-none",
        "a run that stops does not wait for the children of its elements",
        (Edit("kernel.composition.child_runs:has_children_out", "draft.plan.has_child_elements", "False"),),
    ),
    Mutant(
        "late-child-is-certain",
        "a step whose child is late does not say that its effect is in doubt",
        (Edit("kernel.composition.children:out_of_time", "CHILD_LATE", '"its child run is late"'),),
    ),
    Mutant(
        "child-left-untold",
        "a parent does not hear that its child left something of what it did",
        (Edit("operations.children.children:ChildSweep._report_end", "await self._is_partial(child)", "False"),),
    ),
    Mutant(
        "chosen-child-fenced-by-none",
        "a run that stops does not wait for the child of the case that a choice took",
        (Edit("kernel.kinds:ChoiceStep.awaits_child", "any(case.awaits_child for case in self.cases)", "False"),),
    ),
    Mutant(
        "chosen-child-kept",
        "a rollback does not undo the child of the case that a choice took",
        (
            Edit(
                "kernel.plan:Plan._planned_element",
                "definition=case,",
                "definition=replace(case, undo=case.executor and case.undo),",
            ),
        ),
    ),
)
