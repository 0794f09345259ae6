"""Walks the workflows that a definition starts as children, and says how their runs may end.

Each workflow of a tree is walked once, from the leaves up: how a child may end is a fate of the step that starts it. It
finds no definition itself, and bounds what is walked: what is left out has a reason. `report` calls it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stepkeep.kernel.composition.segments import element_name
from stepkeep.kernel.definition import Definition, SubWorkflow, templates_of
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.plan import PlannedStep

Find = Callable[[SubWorkflow], Definition | None]
"""The definition of a child; None if there is none to be found."""

MOST_WALKED = 20
"""How many different workflows of one tree are walked, besides the first."""

DEEPEST = 8
"""How many generations are walked; a tree of runs has no more."""


class ChildEnds(msgspec.Struct, frozen=True, kw_only=True):
    """How a child may end, besides success. `leaves` names steps whose effect no rollback of the child undoes, and
    `leaves_when` the ends after which something may remain of what it did.

    The defaults are those of a child that is not known.
    """

    fails: bool = True
    is_rolled_back: bool = False
    never_ends: bool = False
    may_leave: bool = True
    has_effects: bool = True
    leaves: tuple[str, ...] = ()
    leaves_when: frozenset[RunState] = frozenset()


UNKNOWN = ChildEnds()


def children_of(definition: Definition) -> dict[str, SubWorkflow]:
    """The workflows that the steps of a definition start, by the name of the step; of a case, that of its element."""
    found: dict[str, SubWorkflow] = {}
    for step in definition.steps:
        for place, one in enumerate(templates_of(step)):
            if one.child is not msgspec.UNSET:
                found[step.name if one is step else element_name(step.name, place)] = one.child
    return found


def child_key(planned: PlannedStep) -> str:
    """The name that `children_of` has for a step: elements of a map or a loop have that of their owner."""
    definition = planned.definition
    is_case = planned.index is not None and definition.growth is msgspec.UNSET
    return element_name(definition.name, planned.index or 0) if is_case else definition.name


NOT_FOUND = "it was not found beside this definition, in its program or in a database"
IN_A_CIRCLE = "it is started by itself"
TOO_DEEP = f"it is more than {DEEPEST} generations down"
TOO_MANY = f"{MOST_WALKED} other workflows of the tree were walked"
NO_TIME = "the walk of the others took as long as a walk may"
