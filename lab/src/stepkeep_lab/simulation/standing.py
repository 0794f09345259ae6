"""The final check of decisions by people and by rules: each rests on what was on record when it was made.

It compares votes with the rows of people, and verdicts with the revisions of the live policy, and has the verdicts
replayed. A vote is never later than the end of a right that it counts. `verdict.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.definition.policy import CompiledPolicy
from stepkeep.evidence.people import history
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import SECOND, BudgetOf
from stepkeep.kernel.machine.journal import Entry, open_entry
from stepkeep.kernel.machine.rows import Vote
from stepkeep.kernel.people.authority import MembershipKind
from stepkeep.kernel.plan import Plan
from stepkeep.operations.people.live_policies import compiled
from stepkeep.operations.people.policies import replay_policy
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.principals import MembershipRow
from stepkeep_lab.simulation.stage import TENANT, Stage

READ_AGAIN_US = 2 * SECOND
"""How old the live policy of a process may be (docs/policy.md)."""

ASKED = frozenset({"dependencies_met", "gate_opened", "wait_opened", "retry_due", "held", "denied", "denied_tolerated"})
"""Triggers before which policies are asked."""


ENDS = ("revoked", "undelegated", "key revoked")
"""Changes after which a row counts no more."""


class Standing:
    """Asks its questions one after the other; what it finds goes to the ledger."""

    def __init__(self, stage: Stage, plans: dict[int, Plan]) -> None:
        self._stage, self._plans = stage, plans
        self._tables, self._ledger = stage.database.tables, stage.ledger
        self._rows = stage.database.tables.people
        self._revisions = list(reversed(self._tables.policies.get(TENANT, [])))
        self._compiled: dict[int, Policy | None] = {}

    def _must(self, holds: bool, said: str) -> None:
        if not holds:
            self._ledger.violation(said)

    async def check(self, transactor: Transactor) -> None:
        for key, votes in self._tables.votes.items():
            for vote in votes.values():
                self._vote(vote, self._first_opening(key, vote))
        self._violations_are_kept()
        self._changes_are_kept()
        self._attempts_are_counted()
        chain = (await history(transactor.store, TENANT, None, after=0, limit=1)).chain
        self._must(chain.is_intact, f"the journal of people is broken at {chain.broken_at}")
        self._must(not chain.differences, f"rows of people: {chain.differences}")
        for tenant, run_id in self._tables.runs:
            verdicts = list(self._judged(tenant, run_id))
            if any(record is not None for _, _, record in verdicts):
                await self._replay(transactor, run_id)
            for entry, step, record in verdicts:
                self._asked_newest(entry, step, record)

    def _first_opening(self, key: tuple[str, str], vote: Vote) -> int:
        """When the gate opened first; after a request for changes it opens anew, and rights still count from then."""
        gates = self._tables.gates[key]
        opened_at = gates[vote.no, vote.activation].opened_at
        for (no, activation), gate in sorted(gates.items(), reverse=True):
            is_before = no == vote.no and activation < vote.activation
            if is_before and gate.outcome == "changes_requested" and gate.closed_at == opened_at:
                opened_at = gate.opened_at
        return opened_at

    def _violations_are_kept(self) -> None:
        """A person who was told that a duty rules them out is on record for that."""
        kept = set()
        for entries in self._tables.journal.values():
            for one in entries.values():
                for cause in open_entry(one.body).causes:
                    if cause.event == "duty_violated" and cause.detail is not None:
                        kept.add((cause.actor, cause.detail["rule"], cause.detail["step"]))
        lost = self._ledger.violations_told - kept
        self._must(not lost, f"refused because of their duties, and not on record: {sorted(lost)}")

    # -- people ------------------------------------------------------------------------------------------------------
    def _vote(self, vote: Vote, opened_at: int) -> None:
        said = f"{vote.person} decided step {vote.no} of {vote.run_id} at {vote.at}"
        subject = vote.on_behalf_of or vote.person
        for right in vote.held_roles:
            kind, _, name = right.partition(":")
            for at in (opened_at, vote.at) if kind == "role" else ():
                held = any(_holds(row, subject, name, at) for row in self._rows.memberships.values())
                self._must(held, f"{said} by the role {name} that {subject} did not have at {at}")
        if vote.key_id is not None:
            key = self._rows.keys.get((TENANT, vote.key_id))
            live = key is not None and not _is_over(key.revoked_at, key.expires_at, vote.at)
            self._must(live and key is not None and key.owner == vote.person, f"{said} with the key {vote.key_id}")
        if vote.on_behalf_of is not None:
            row = self._rows.delegations.get((TENANT, vote.delegation_id or ""))
            fits = row is not None and (row.delegator, row.delegate) == (subject, vote.person)
            self._must(
                fits and row is not None and not _is_over(row.revoked_at, row.valid_to, vote.at),
                f"{said} for {subject} without a delegation",
            )
        gone = self._rows.disabled_at(TENANT, vote.person, vote.at)
        self._must(not gone, f"{said} although the account was disabled")

    def _changes_are_kept(self) -> None:
        """Promise 2: a change of people that was acknowledged is on record."""
        tables: dict[str, Mapping[tuple[str, str], Any]] = {
            "membership": self._rows.memberships,
            "delegation": self._rows.delegations,
            "key": self._rows.keys,
        }
        for kind, answer in self._ledger.changes:
            for word in answer.keys() & tables.keys():
                row, said = tables[word].get((TENANT, answer[word]["id"])), f"promise 2: {kind} {answer[word]['id']}"
                self._must(row is not None, f"{said} was acknowledged, and it is lost")
                counts = row is not None and row.revoked_at is None
                self._must(not (counts and kind in ENDS), f"{said} was acknowledged, and it counts still")

    # -- policies ----------------------------------------------------------------------------------------------------
    def _judged(self, tenant: str, run_id: str) -> Iterator[tuple[Entry, str, Mapping[str, Any] | None]]:
        """Each hop of a main step before which policies are asked, with the verdict on record."""
        plan = self._plans[self._tables.runs[tenant, run_id].definition_id]
        for sealed in self._tables.journal[tenant, run_id].values():
            entry = open_entry(sealed.body)
            for hop in entry.hops:
                if hop.trigger in ASKED and 0 <= hop.no < plan.size:
                    step = plan.at(hop.no).name
                    yield entry, step, (entry.causes[hop.by].detail or {}).get("policy", {}).get(step)

    def _asked_newest(self, entry: Entry, step: str, record: Mapping[str, Any] | None) -> None:
        """The revision that was asked was the newest at most two seconds before the decision, or the pinned one."""
        run = self._tables.runs[entry.tenant, entry.run_id]
        workflow = self._plans[run.definition_id].definition.name
        since, policies = self._since(entry.at), self._in_force(entry.run_id, entry.at)
        said = f"step {step} of {entry.run_id} at {entry.at}"
        if record is None:
            silent = any(one is None or not one.concerns(workflow, step) for one in policies)
            self._must(silent, f"{said}: no verdict is on record, and every recent revision has rules about it")
            return
        if record.get("by") == "parent":
            return  # a budget of a run above was spent, so that no policy was asked
        asked = record.get("revision")
        fits = asked in [None if one is None else one.revision for one in policies]
        self._must(fits, f"{said}: revision {asked} was asked, which was not the newest within two seconds")
        for name, spent in record.get("facts", {}).get("spend", {}).items():
            if asked is not None:
                self._spent(entry, workflow, name, spent, asked, since, said)

    def _spent(
        self, entry: Entry, workflow: str, name: str, spent: Mapping[str, float], asked: int, since: int, said: str
    ) -> None:
        """A shared budget counts every attempt that was committed two seconds before, and none that came later."""
        policy = self._policy(asked)
        assert isinstance(policy, CompiledPolicy)
        budget = next(one for one in policy.budgets if one.name == name)
        moments = [
            moment
            for (run_id, no, fence), moment in self._ledger.committed.items()
            if (attempt := self._tables.attempts[TENANT, run_id][no, fence]).cost is not None
            and attempt.ended_at > since - budget.per
            and (budget.of is BudgetOf.TENANT or self._tables.details[TENANT, run_id].workflow == workflow)
        ]
        least, most = sum(moment < since for moment in moments), len(moments)
        fits = least <= spent["attempts"] <= most
        self._must(fits, f"{said}: {spent['attempts']} attempts of {name} were counted, expected {least} or more")

    def _since(self, at: int) -> int:
        """The earliest moment at which a process that decides at `at` may have read the policy."""
        return at - READ_AGAIN_US - round(self._stage.scenario.tick * SECOND)

    def _in_force(self, run_id: str, at: int) -> list[Policy | None]:
        """The revisions by one of which a decision on a run went: its pinned one, or those that were newest lately."""
        pinned = self._tables.details[TENANT, run_id].policy_revision
        if pinned is not None:
            return [self._policy(pinned)]
        before = [place for place, one in enumerate(self._revisions) if one.published_at < self._since(at)]
        recent = self._revisions[before[-1] if before else 0 :]
        known = [self._policy(one.revision) for one in recent]
        return known + ([] if before else [None])

    def _attempts_are_counted(self) -> None:
        """Where a shared budget counts attempts, each attempt that ends is found by its cost."""
        for (_, run_id), attempts in self._tables.attempts.items():
            for attempt in attempts.values():
                counted = all(
                    one is not None and one.counts_attempts for one in self._in_force(run_id, attempt.ended_at)
                )
                said = f"attempt {attempt.fence} of step {attempt.no} of {run_id} counts towards no budget"
                self._must(attempt.cost is not None or not counted, said)

    def _policy(self, revision: int) -> Policy | None:
        if revision not in self._compiled:
            stored = next(one for one in self._revisions if one.revision == revision)
            self._compiled[revision] = compiled(stored)
        return self._compiled[revision]

    async def _replay(self, transactor: Transactor, run_id: str) -> None:
        """Every verdict is the same again, from the facts and the revision on record."""
        self._ledger.met["verdicts replayed"] += 1
        told = await replay_policy(transactor, run_id, tenant=TENANT)
        for one in told["verdicts"]:
            self._must(one["ok"], f"the verdict on {one['step']} of {run_id} (entry {one['entry']}) is another: {one}")


def _holds(row: MembershipRow, subject: str, role: str, at: int) -> bool:
    if (row.subject, row.kind, row.name) != (subject, MembershipKind.ROLE, role):
        return False
    return row.granted_at <= at and not _is_over(row.revoked_at, row.valid_to, at)


def _is_over(revoked_at: int | None, ends_at: int | None, at: int) -> bool:
    """Whether a right had ended at this moment. The virtual clock may give a vote the same time as a later change."""
    return (revoked_at is not None and revoked_at < at) or (ends_at is not None and ends_at <= at)
