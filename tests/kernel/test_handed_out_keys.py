"""Which key may be handed out by which: every pair of drawn keys, beside a rule that is written down anew."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.people.authority import KeyUsed, WorkLimits, hand_out
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted

SCOPES = (("read",), ("read", "work"), ("read", "admin"))
LIMITS = ((None, None), (("a",), None), (("a", "b"), ("h",)))


def keys(owners: tuple[str, ...]) -> list[KeyUsed]:
    return [
        KeyUsed(
            id=f"k{place}",
            owner=owner,
            scopes=frozenset(scopes),
            expires_at=ends,
            is_session=is_session,
            limits=WorkLimits(queues=queues, handlers=handlers),
        )
        for place, (owner, scopes, ends, is_session, (queues, handlers)) in enumerate(
            product(owners, SCOPES, (None, 5, 9), (False, True), LIMITS)
        )
    ]


def within(mine: tuple[str, ...] | None, theirs: tuple[str, ...] | None) -> bool:
    return mine is None or (theirs is not None and all(one in mine for one in theirs))


def is_worth_no_more(hand: KeyUsed, wanted: KeyUsed) -> bool:
    if wanted.is_session:
        return False
    if "admin" in hand.scopes:
        return True
    lasts = hand.expires_at is None or (wanted.expires_at is not None and wanted.expires_at <= hand.expires_at)
    works = within(hand.limits.queues, wanted.limits.queues) and within(hand.limits.handlers, wanted.limits.handlers)
    scopes = all(one in hand.scopes for one in wanted.scopes)
    is_own = hand.owner == wanted.owner and not hand.is_session
    return is_own and scopes and lasts and (works or "work" not in wanted.scopes)


def test_a_key_is_handed_out_by_keys_that_are_worth_as_much() -> None:
    tried = given = 0
    for hand, wanted in product(keys(("ann",)), keys(("ann", "bea"))):
        was_given = False
        with suppress(NotAllowed):
            hand_out(hand, wanted)
            was_given = True
        assert was_given is is_worth_no_more(hand, wanted), (hand, wanted)
        tried, given = tried + 1, given + was_given
    assert (tried, given > 500) == (54 * 108, True)


def test_a_program_without_a_key_hands_out_any_key_but_that_of_a_session() -> None:
    for wanted in keys(("ann",)):
        if wanted.is_session:
            with pytest.raises(NotAllowed):
                hand_out(None, wanted)
        else:
            hand_out(None, wanted)


BUGS = {
    "sessions-replaced": ("if wanted.is_session:", "if False:"),
    "session-gets-keys": ("(hand.is_session, ", "(False, "),
    "other-owners": ("(wanted.owner != hand.owner, ", "(False, "),
    "more-scopes": ("wanted.scopes - hand.scopes", "hand.scopes - wanted.scopes"),
    "more-work": ("not hand.limits.cover(wanted.limits)", "not wanted.limits.cover(hand.limits)"),
    "longer-life": ("wanted.expires_at > hand.expires_at", "wanted.expires_at < hand.expires_at"),
    "endless-life": ("(wanted.expires_at is None or ", "(wanted.expires_at is not None and "),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with (
        planted(Mutant(name, name, (Edit("kernel.people.authority:hand_out", *BUGS[name]),))),
        pytest.raises(AssertionError),
    ):
        test_a_key_is_handed_out_by_keys_that_are_worth_as_much()
