"""Live policies of the tenant: `engine.publish_policy` and its kin. `AsyncEngine` inherits it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from stepkeep.engine.base import AsyncBase
from stepkeep.kernel.machine.bounds import INT
from stepkeep.operations.access import ADMINISTER, READ
from stepkeep.operations.operation import Actor, RunId, group, operation
from stepkeep.operations.people import policies
from stepkeep.operations.people.policies import PolicyList, PolicyRevision, PolicyView, Replay
from stepkeep.operations.typed import InPython

Policy = Annotated[
    str | Path | Mapping[str, Any],
    InPython(dict[str, Any]),
    Meta(
        description="A policy document with rules, and cases that must hold.",
        examples=[{"policy": "night", "rules": [{"name": "no-deploy", "when": "false", "then": "deny"}]}],
    ),
]
Revision = Annotated[int | None, InPython(Annotated[int, Meta(ge=1, le=INT)])]


@group("", "Policies")
class AsyncPolicies(AsyncBase):
    """Rules that allow, hold or deny steps before they run."""

    @operation(
        ADMINISTER,
        "POST /policies",
        "publish_policy",
        "Publish a policy",
        status=201,
        done="Published",
        repeatable=False,
    )
    async def publish_policy(self, policy: Policy, *, by: Actor = None) -> PolicyRevision:
        """Publish a policy, a file or a mapping, as the next revision of the tenant. Its cases must hold. It counts for
        every step that opens from then on.

        >>> rules = [{"name": "weekend", "when": "time.weekday >= 6", "then": "deny", "workflows": ["payout"]}]
        >>> engine.publish_policy({"policy": "payouts", "rules": rules}, by="bea").revision
        1
        """
        from stepkeep.definition.policy import publishable_policy

        document = publishable_policy(policy)
        return await policies.publish_policy(self.transactor, document, caller=self._caller(by))

    @operation(
        ADMINISTER,
        "POST /policies/off",
        "turn_policy_off",
        "Publish a revision without rules",
        status=201,
        done="Published",
        repeatable=False,
    )
    async def policy_off(self, *, by: Actor = None) -> PolicyRevision:
        """Publish a revision without rules: only the rules of definitions count from then on.

        >>> engine.policy_off(by="bea").policy
        'off'
        """
        return await policies.publish_policy(self.transactor, policies.OFF, caller=self._caller(by))

    @operation(
        READ,
        "GET /policies",
        "list_policies",
        "List the revisions of the policy",
        pages="policies",
        page_key="revision",
    )
    async def list_policies(self) -> PolicyList:
        """The revisions of the tenant's policy, newest first.

        >>> engine.list_policies().policies
        []
        """
        return await policies.list_policies(self.transactor, tenant=self.tenant)

    @operation(READ, "GET /policies/{revision}", "get_policy", "Show a revision of the policy")
    async def show_policy(self, revision: Revision = None) -> PolicyView:
        """A revision of the tenant's policy with its rules; in Python without a number, the newest.

        >>> _ = engine.policy_off()
        >>> engine.show_policy(1).document
        {'name': 'off', 'rules': []}
        """
        return await policies.show_policy(self.transactor, revision, tenant=self.tenant)

    @operation(
        READ, "GET /runs/{run_id}/policy", "replay_policy", "Evaluate the verdicts of a run again", tag="Records"
    )
    async def replay_policy(self, run_id: RunId) -> Replay:
        """Evaluate every verdict of a run again, by the facts and the revisions on record.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.replay_policy(started.run_id).ok
        True
        """
        return await policies.replay_policy(self.transactor, run_id, tenant=self.tenant)
