"""When a membership counts: within the dates that were asked for and the moments at which it was recorded."""

from __future__ import annotations

import pytest

from stepkeep.kernel.people.authority import Authority, Membership, MembershipKind

ROLE, GROUP = MembershipKind.ROLE, MembershipKind.GROUP


def role(**times: int | None) -> Membership:
    return Membership(kind=ROLE, name="finance", **{"granted_at": 100, **times})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("membership", "at", "counts"),
    [
        (role(), 99, False),
        (role(), 100, True),
        (role(valid_from=50), 60, False),
        (role(valid_from=150), 149, False),
        (role(valid_from=150), 150, True),
        (role(valid_to=200), 199, True),
        (role(valid_to=200), 200, False),
        (role(revoked_at=180), 179, True),
        (role(revoked_at=180), 180, False),
        (role(valid_to=300, revoked_at=180), 200, False),
        (role(valid_to=150, revoked_at=180), 160, False),
    ],
)
def test_a_membership_counts_within_its_dates_and_its_record(membership: Membership, at: int, counts: bool) -> None:
    assert membership.holds(at) is counts


def test_a_person_has_a_role_only_under_its_own_name_and_kind() -> None:
    person = Authority(person="ann", registered=True, memberships=(role(),))
    assert person.has(ROLE, "finance", 150)
    assert not person.has(GROUP, "finance", 150)
    assert not person.has(ROLE, "legal", 150)
    assert not Authority(person="bo").has(ROLE, "finance", 150)
