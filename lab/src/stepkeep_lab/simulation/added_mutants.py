"""Planted bugs of steps that handlers add: how they are recorded, what they wait for, and what their ends mean.

Data like `mutants`, which has them among its own.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

ADDED_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "added-behind-begins-early",
        "an added step begins although those that it waits for have not ended",
        (Edit("kernel.composition.added:open_added", "and not step.unmet ", ""),),
    ),
    Mutant(
        "added-failure-borne",
        "the failure of an added step does not reach its owner",
        (Edit("kernel.composition.elements:_is_tolerated", "element.definition.on_failure is OnFailure.SKIP", "True"),),
    ),
    Mutant(
        "added-later-not-awaited",
        "an owner does not await the steps that an added step adds",
        (Edit("kernel.composition.added:_add_rows", "owner.unmet + len(added)", "(owner.unmet or len(added))"),),
    ),
    Mutant(
        "added-steps-unbounded",
        "a handler adds more steps than its definition allows",
        (
            Edit(
                "kernel.composition.added:misfit_of_added",
                "count + len(outcome.calls) > growth.max",
                "count > growth.max",
            ),
        ),
    ),
    Mutant(
        "added-without-the-others",
        "an owner is told only the results of its last step",
        (
            Edit(
                "kernel.composition.elements:succeed_with_added",
                "in range(count)",
                "in range(count - 1, count)",
            ),
        ),
    ),
)
