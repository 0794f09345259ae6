"""Separation of duties: every kind of constraint against acts that it allows and acts that it refuses."""

from __future__ import annotations

import pytest

from stepkeep.kernel.definition import Distinct, FourEyes, Incompatible, RequiresRole
from stepkeep.kernel.people.separation import Act, Constraint, Duties, objection, read_exclusion, steps_named

DONE = Duties(
    requested=frozenset({"ann"}),
    executed={"pay": frozenset({"bea"})},
    completed={"count": frozenset({"cyd"})},
    decided={"first": frozenset({"dan", "eve"}), "second": frozenset({"fay"})},
)
OPEN = Duties(decided=DONE.decided, unsettled=frozenset({"first", "second"}))


def act(step: str, *names: str, roles: tuple[str, ...] = (), settles: bool = True) -> Act:
    return Act(step=step, names=frozenset(names), roles=frozenset(roles), settles=settles)


def within(step: str, owner: str, name: str) -> Act:
    """The act of a person on something that stands below a step of the definition."""
    return Act(step=step, within=owner, names=frozenset({name}))


LENT = Duties(
    decided={"lent": frozenset({"bea", "cyd"}), "old": frozenset({"bea", "cyd"})},
    lent={"lent": frozenset({("bea", "cyd")})},
    many=frozenset({"lost"}),
)
"""At `lent`, bea decided for cyd. Of `lost`, no person is on record."""

TABLE: list[tuple[Constraint, Act, Duties, str | None]] = [
    (read_exclusion("requester"), act("g", "ann"), DONE, "ann asked for the run"),
    (read_exclusion("requester"), act("g", "bea", "ann"), DONE, "ann asked for the run"),
    (read_exclusion("requester"), act("g", "bea"), DONE, None),
    (read_exclusion("executed:pay"), act("g", "bea"), DONE, "bea executed pay"),
    (read_exclusion("executed:pay"), act("g", "ann"), DONE, None),
    (read_exclusion("executed:ship"), act("g", "bea"), DONE, None),
    (read_exclusion("completed:count"), act("g", "cyd"), DONE, "cyd completed count"),
    (read_exclusion("completed:count"), act("g", "gil", "cyd"), DONE, "cyd completed count"),
    (read_exclusion("decided:first"), act("g", "eve"), DONE, "eve decided first"),
    (read_exclusion("decided:first"), act("g", "fay"), DONE, None),
    (read_exclusion("gil"), act("g", "gil"), DONE, "gil may not decide g"),
    (read_exclusion("gil"), act("g", "ann"), DONE, None),
    (Distinct(gates=("first", "second")), act("second", "dan"), DONE, "dan decided first"),
    (Distinct(gates=("first", "second")), act("second", "gil", "dan"), DONE, "dan decided first"),
    (Distinct(gates=("first", "second")), act("second", "fay"), DONE, None),
    (Distinct(gates=("first", "second")), act("g", "dan"), DONE, None),
    (Incompatible(steps=("pay", "second")), act("second", "bea"), DONE, "bea acted on pay"),
    (Incompatible(steps=("count", "second")), act("second", "cyd"), DONE, "cyd acted on count"),
    (Incompatible(steps=("first", "count")), act("count", "dan"), DONE, "dan acted on first"),
    (Incompatible(steps=("pay", "second")), act("second", "dan"), DONE, None),
    (Incompatible(steps=("pay", "second")), act("g", "bea"), DONE, None),
    (FourEyes(gates=("second", "third")), act("third", "fay"), DONE, "another person than fay"),
    (FourEyes(gates=("second", "third")), act("third", "gil"), DONE, None),
    (FourEyes(gates=("first", "third")), act("third", "dan"), DONE, None),
    (FourEyes(gates=("second", "third")), act("third", "fay", settles=False), DONE, None),
    (FourEyes(gates=("second", "third")), act("third", "fay"), OPEN, None),
    (FourEyes(gates=("second", "third")), act("g", "fay"), DONE, None),
    (FourEyes(gates=("skipped", "third")), act("third", "fay"), DONE, None),
    (FourEyes(gates=("lent", "third")), act("third", "bea"), LENT, "another person than bea"),
    (FourEyes(gates=("lent", "third")), act("third", "Cyd"), LENT, "another person than Cyd"),
    (FourEyes(gates=("lent", "third")), act("third", "bea", "dan"), LENT, "another person than bea"),
    (FourEyes(gates=("lent", "third")), act("third", "dan"), LENT, None),
    (FourEyes(gates=("old", "third")), act("third", "bea"), LENT, None),
    (FourEyes(gates=("lost", "third")), act("third", "bea"), LENT, "another person than bea"),
    (Distinct(gates=("lost", "third")), act("third", "bea"), LENT, "any person may have decided lost"),
    (Incompatible(steps=("lost", "third")), act("third", "bea"), LENT, "any person may have acted on lost"),
    (read_exclusion("executed:lost"), act("third", "bea"), LENT, "any person may have executed lost"),
    (Distinct(gates=("first", "m")), within("m[1]", "m", "dan"), DONE, "dan decided first"),
    (Distinct(gates=("first", "m")), within("m[1]", "m", "gil"), DONE, None),
    (Incompatible(steps=("m", "second")), within("m[1]", "m", "fay"), DONE, "fay acted on second"),
    (FourEyes(gates=("second", "m")), within("m[1]", "m", "fay"), DONE, "another person than fay"),
    (RequiresRole(step="m", role="cfo"), within("m[1]", "m", "ann"), DONE, "m[1] takes the role cfo"),
    (RequiresRole(step="g", role="cfo"), act("g", "ann", roles=("cfo",)), DONE, None),
    (RequiresRole(step="g", role="cfo"), act("g", "ann", roles=("ceo",)), DONE, "g takes the role cfo"),
    (RequiresRole(step="g", role="cfo"), act("h", "ann"), DONE, None),
]


@pytest.mark.parametrize(("constraint", "what", "duties", "reason"), TABLE)
def test_a_constraint_refuses_exactly_the_acts_that_break_it(
    constraint: Constraint, what: Act, duties: Duties, reason: str | None
) -> None:
    found = objection([constraint], what, duties)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found.reason


@pytest.mark.parametrize(
    ("constraint", "steps"),
    [
        (read_exclusion("requester"), ()),
        (read_exclusion("decided:first"), ("first",)),
        (Distinct(gates=("a", "b")), ("a", "b")),
        (FourEyes(gates=("a", "b")), ("a", "b")),
        (Incompatible(steps=("a", "b")), ("a", "b")),
        (RequiresRole(step="a", role="r"), ()),
    ],
)
def test_a_constraint_names_the_steps_whose_people_it_asks_for(constraint: Constraint, steps: tuple[str, ...]) -> None:
    assert steps_named(constraint) == steps


def test_the_first_constraint_that_objects_is_the_one_that_is_named() -> None:
    found = objection([read_exclusion("requester"), RequiresRole(step="g", role="cfo")], act("g", "ann"), DONE)
    assert found is not None
    assert found.rule == "maker_checker"
