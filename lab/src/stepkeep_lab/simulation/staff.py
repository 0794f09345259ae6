"""Changes of people and of the live policy while runs go on: roles, delegations, keys, accounts, and revisions.

All changes go through the operations of the product and through the server, so that they meet the same faults as other
requests. Some people are never changed: every gate can be decided in the end. `run_seed` starts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepkeep.definition.policy import PolicyDocument
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    BudgetOf,
    OnDeadline,
    OnExceeded,
    PolicyEffect,
    PolicyRule,
    SharedBudget,
)
from stepkeep.kernel.errors import Refused, StoreError
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations.access import Access
from stepkeep.operations.people import keys, principals
from stepkeep.operations.people.policies import OFF, publish_policy
from stepkeep_lab.simulation.definitions import ROLE, VOTERS, maybe
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.processes import Server
from stepkeep_lab.simulation.stage import TENANT, Stage

CHANGED = ("ann", "dan", "eve")
"""The people whose roles, accounts, keys and delegations change. The others keep theirs: four of them can always fill a
quorum of three, also without the one who asked for the run."""

ROOT = Caller(TENANT, "root")

RULES = (
    PolicyRule(name="looked-at", then=PolicyEffect.ALLOW, when="step.attempt > 1"),
    PolicyRule(name="role", then=PolicyEffect.HOLD, when=f'"{ROLE}" in principal.roles', steps=("s1", "h1")),
    PolicyRule(name="by-two", then=PolicyEffect.HOLD, steps=("s2", "h2"), approval=Approval(quorum=2, roles=(ROLE,))),
    PolicyRule(
        name="in-time",
        then=PolicyEffect.HOLD,
        when="step.attempt == 1",
        steps=("s0", "h0"),
        approval=Approval(deadline=8 * SECOND, on_deadline=OnDeadline.APPROVE),
    ),
    PolicyRule(name="dear", then=PolicyEffect.DENY, when="cost.attempts > 3.0"),
    PolicyRule(name="never", then=PolicyEffect.DENY, steps=("s4",)),
)
"""The rules of which a revision has some."""


HOUR = 3_600 * SECOND
BUDGETS = (
    SharedBudget(name="ours", limits={"attempts": 30.0}, per=HOUR, on_exceeded=OnExceeded.HOLD),
    SharedBudget(name="each", limits={"attempts": 6.0}, per=HOUR, of=BudgetOf.WORKFLOW, on_exceeded=OnExceeded.WARN),
)
"""The shared budgets of which a revision has some."""

T = TypeVar("T")


class Staff:
    """The administrator of the tenant. `keys` are the ids that people decide with, also after their end."""

    def __init__(self, stage: Stage, server: Server, hurry: Callable[[str], None]) -> None:
        """`hurry` lets a person decide at once whose right is about to end."""
        self._stage, self._server, self._hurry = stage, server, hurry
        self._random = stage.random("staff")
        self._ledger = stage.ledger

    async def change(self) -> None:
        """Change people and policies until the chaos is over."""
        random, scenario = self._random, self._stage.scenario
        while (scenario.staff or scenario.policies) and self._stage.chaos:
            await asyncio.sleep(random.choice((0.1, 1.0, 3.0)) * random.random())
            if maybe(random, scenario.staff):
                await random.choice(CHANGES)(self)
            if maybe(random, scenario.policies):
                await self._publish()

    async def _ask(self, kind: str, operation: Callable[[Server], Awaitable[T]]) -> T | None:
        """Ask once; a refusal is an answer, and after a fault nothing is known."""
        self._stage.log.note(Fault.STAFF, kind)
        try:
            answer = await self._server.call(operation)
        except Refused as refusal:
            self._ledger.refusals[type(refusal).__name__] += 1
        except StoreError as problem:
            self._ledger.met[f"a caller met {type(problem).__name__}"] += 1
        except Exception as problem:  # noqa: BLE001 - a defect, to be told
            self._ledger.violation(f"a change of people broke: {type(problem).__name__}: {problem}")
        else:
            self._ledger.changes.append((kind, answer))
            return answer
        return None

    def _access(self, server: Server) -> Access:
        return Access(server.transactor.store, TENANT, "root")

    async def _grant(self) -> None:
        name, until = self._random.choice(CHANGED), self._random.choice((None, None, 6 * SECOND))
        ends = None if until is None else self._stage.now() + until
        await self._ask(
            "granted",
            lambda server: principals.grant(
                server.transactor.store,
                name,
                MembershipKind.ROLE,
                ROLE,
                to_group=False,
                valid_from=None,
                valid_to=ends,
                caller=ROOT,
            ),
        )

    async def _revoke(self) -> None:
        name = self._random.choice(CHANGED)
        self._hurry(name)
        await self._ask(
            "revoked",
            lambda server: principals.revoke(
                server.transactor.store, name, MembershipKind.ROLE, ROLE, from_group=False, caller=ROOT
            ),
        )

    async def _delegate(self) -> None:
        delegate = self._random.choice(CHANGED)
        delegator = self._random.choice([one for one in VOTERS if one != delegate])
        await self._ask(
            "delegated",
            lambda server: principals.delegate(
                server.transactor.store,
                self._access(server),
                delegator,
                delegate,
                reason="chaos",
                valid_from=None,
                valid_to=None,
                caller=ROOT,
            ),
        )

    async def _undelegate(self) -> None:
        rows = [row for row in self._stage.database.tables.people.delegations.values() if row.revoked_at is None]
        if rows:
            row = self._random.choice(rows)
            await self._ask(
                "undelegated",
                lambda server: principals.undelegate(
                    server.transactor.store, self._access(server), row.delegator, row.delegate, caller=ROOT
                ),
            )

    async def _create_key(self) -> None:
        owner, lifetime = self._random.choice(VOTERS), self._random.choice((None, 5 * SECOND))
        made = await self._ask(
            "key created",
            lambda server: keys.create_key(
                server.transactor.store,
                owner,
                scopes=["decide"],
                expires_at=None,
                expires_in=lifetime,
                caller=ROOT,
            ),
        )
        if made is not None:
            self._ledger.keys.append((made.key.id, owner))

    async def _revoke_key(self) -> None:
        if self._ledger.keys:
            key, _ = self._random.choice(self._ledger.keys[-4:])
            await self._ask(
                "key revoked",
                lambda server: keys.revoke_key(server.transactor.store, self._access(server), key, caller=ROOT),
            )

    async def _disable(self) -> None:
        name = self._random.choice(CHANGED)
        self._hurry(name)
        await self._ask(
            "disabled",
            lambda server: principals.disable_user(server.transactor.store, name, caller=ROOT),
        )
        await asyncio.sleep(self._random.random() * 3)
        await self._ask(
            "enabled",
            lambda server: principals.enable_user(server.transactor.store, name, caller=ROOT),
        )

    async def _publish(self) -> None:
        rules = tuple(rule for rule in RULES if maybe(self._random, 0.3))
        budgets = tuple(budget for budget in BUDGETS if maybe(self._random, 0.2))
        pins = maybe(self._random, 0.25)
        drawn = PolicyDocument(name="drawn", rules=rules, budgets=budgets, pins=pins)
        document = drawn if rules or budgets else OFF
        await self._ask(
            "published",
            lambda server: publish_policy(server.transactor, document, caller=Caller(TENANT, "root")),
        )


CHANGES: tuple[Callable[[Staff], Awaitable[None]], ...] = (
    Staff._grant,
    Staff._grant,
    Staff._revoke,
    Staff._delegate,
    Staff._undelegate,
    Staff._create_key,
    Staff._create_key,
    Staff._revoke_key,
    Staff._disable,
)
