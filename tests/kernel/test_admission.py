"""Which caller may decide at all: the key that was used counts, and the person may act. A refusal leaves no trace."""

from __future__ import annotations

import pytest
from tests.kernel.driver import World, gate

from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Accepted, Decision, Need, Snapshot
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import CancelRequested, GateDecided
from stepkeep.kernel.people.authority import Authority, Caller, KeyUsed

ANN = Authority(person="ann", registered=True)
KEY = KeyUsed(id="k1", owner="ann", scopes=frozenset({"decide"}), expires_at=2**60)
VOUCHING = KeyUsed(id="k1", owner="portal", scopes=frozenset({"decide", "vouch"}))

CASES: list[tuple[str, str | None, Authority]] = [
    ("", None, Authority(person="ann")),
    ("", None, ANN),
    ("disabled", None, Authority(person="ann", registered=True, disabled=True)),
    ("vouching_refused", None, Authority(person="ann", registered=True, vouching_allowed=False)),
    ("", "k1", Authority(person="ann", registered=True, vouching_allowed=False, key=KEY)),
    ("", "k1", Authority(person="ann", vouching_allowed=False, key=VOUCHING)),
    ("key_unknown", "k1", ANN),
    ("key_owner", "k1", Authority(person="ann", key=KeyUsed(id="k1", owner="bea"))),
    ("key_revoked", "k1", Authority(person="ann", key=KeyUsed(id="k1", owner="ann", revoked_at=0))),
    ("key_expired", "k1", Authority(person="ann", key=KeyUsed(id="k1", owner="ann", expires_at=0))),
    ("disabled", "k1", Authority(person="ann", registered=True, disabled=True, key=KEY)),
]


def snapshot_of(world: World, caller: Caller, authority: Authority) -> Snapshot:
    return Snapshot(
        plan=world.plan, run=world.run, steps=world.rows, whole=True, waiting=True, authorities={caller: authority}
    )


def approval(world: World, key: str | None) -> GateDecided:
    run = world.run
    return GateDecided(tenant=run.tenant, run_id=run.id, actor="ann", approve=True, no=0, key=key)


@pytest.mark.parametrize(("rule", "key", "authority"), CASES)
def test_a_caller_is_admitted_or_refused_by_a_named_rule(rule: str, key: str | None, authority: Authority) -> None:
    world = World(gate("a"))
    caller = Caller(world.run.tenant, "ann", key)
    decision = decide(snapshot_of(world, caller, authority), (approval(world, key),), world.now)
    assert isinstance(decision, Decision)
    (reply,) = decision.replies
    if not rule:
        assert isinstance(reply, Accepted)
        return
    assert isinstance(reply, NotAllowed)
    assert (reply.rule, reply.person) == (rule, "ann")
    assert decision.entry is None, "a refusal leaves no trace"


def test_a_decision_without_the_authority_of_its_actor_asks_for_it() -> None:
    world = World(gate("a"))
    snapshot = Snapshot(plan=world.plan, run=world.run, steps=world.rows, whole=True, waiting=True)
    need = decide(snapshot, (approval(world, "k1"),), world.now)
    assert need == Need(people=frozenset({Caller(world.run.tenant, "ann", "k1")}))


def test_a_request_that_decides_no_step_is_checked_only_with_a_key() -> None:
    world = World(gate("a"))
    plain = CancelRequested(tenant=world.run.tenant, run_id=world.run.id, actor="ann")
    bare = Snapshot(plan=world.plan, run=world.run, steps=world.rows, whole=True, waiting=True)
    assert isinstance(decide(bare, (plain,), world.now), Decision)
    keyed = CancelRequested(tenant=world.run.tenant, run_id=world.run.id, actor="ann", key="k1")
    assert isinstance(decide(bare, (keyed,), world.now), Need)
