"""Places under limits, chosen for the claims of one transaction under the locks of their keys.

It counts what the rows of the keys say, gives places in claim order, and says where the others wait: each step under
the first of its keys that is full. No step overtakes the line of its own queue under a key. `resource_claims` calls it;
the rules of counting are the kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from stepkeep.kernel.decide.limits import Demand, Full, KeyUse, LimitRule, find_place, take
from stepkeep.kernel.decide.resources import ready_since
from stepkeep.kernel.definition import Limit
from stepkeep.kernel.machine.bounds import MAX_PRIORITY
from stepkeep.kernel.machine.events import LimitGrant
from stepkeep.kernel.machine.rows import Step
from stepkeep.operations.limits.rules import NO_RULE, Rules
from stepkeep.store.change import LimitChange, Loaded
from stepkeep.store.rows import LimitHold, LimitKey, LimitLine, LimitWait, ResourceWaiter

LOOK_AGAIN_US = 1_000_000
"""A new line is looked at once more after this time: the rule of its key may have changed while its step was parked."""


class Taken(NamedTuple):
    """A claim that was chosen, and its places."""

    step: Step
    name: str
    grants: tuple[LimitGrant, ...]


class KeyGrants:
    """The places of one transaction."""

    def __init__(
        self, loaded: Loaded, rules: Mapping[str, Rules], looked: Sequence[tuple[LimitLine, bool]] = ()
    ) -> None:
        self._now, self._rules, self._rows, self._looked = loaded.now, rules, loaded.limits, looked
        # Those that wait in a line of which all is looked at come first here: a step after them overtakes none.
        self._lines = loaded.lines - {(line.limit_key, line.queue) for line, is_all in looked if is_all}
        self._use = {place: KeyUse(row.seq, row.held, row.tat, row.freed) for place, row in loaded.limits.items()}
        self._waited: dict[tuple[LimitKey, int], int | None] = {}
        self._taken: list[Taken] = []
        self._parked: list[LimitWait] = []
        self._left: list[tuple[str, str, int]] = []

    def find_full(
        self, step: Step, asked: Sequence[Demand], line: LimitLine | None, now: int, *, alone: bool
    ) -> LimitKey | None:
        """The first key that has no place for a step, which waits there; None if all have one. A step overtakes none
        that wait in the line of its queue; with `alone` it does, because one program works for its run alone. `now` is
        the time of the journal entry."""
        for one in asked:
            place = (step.tenant, one.limit.name, one.key)
            spot = (place, step.queue)
            full = find_place(self._rule(place, one.limit)[0], self._use[place], one, now)
            is_behind = spot in self._waited or (spot in self._lines and (line is None or line.limit_key != place))
            if full is None and (alone or not is_behind):
                continue
            if full is not None:
                self._waited.setdefault(spot, full.due_at)
            return place
        return None

    def take(self, step: Step, name: str, asked: Sequence[Demand], now: int) -> tuple[LimitGrant, ...]:
        """Give a step a place under each of its limits."""
        grants = []
        for one in asked:
            place = (step.tenant, one.limit.name, one.key)
            rule, revision = self._rule(place, one.limit)
            grants.append(take(rule, revision, self._use[place], one, now))
        self._taken.append(Taken(step, name, tuple(grants)))
        return tuple(grants)

    def park(self, step: Step, place: LimitKey) -> None:
        """Let a step wait under this key."""
        _, name, key = place
        self._parked.append(
            LimitWait(
                tenant=step.tenant,
                run_id=step.run_id,
                no=step.no,
                name=name,
                key=key,
                queue=step.queue,
                priority=step.priority,
                asked_at=ready_since(step.ready_at or 0),
            )
        )

    def put_last(self, waiter: ResourceWaiter, line: LimitLine) -> None:
        """The run of a parked step cannot be read: it waits behind the others in its line."""
        self._parked.append(
            LimitWait(
                tenant=waiter.tenant,
                run_id=waiter.run_id,
                no=waiter.no,
                name=line.name,
                key=line.key,
                queue=line.queue,
                priority=-MAX_PRIORITY,
                asked_at=self._now,
            )
        )

    def leave(self, step: tuple[str, str, int]) -> None:
        """A step is parked no more."""
        self._left.append(step)

    def _rule(self, place: LimitKey, limit: Limit | None) -> tuple[LimitRule, int]:
        tenant, name, key = place
        found = self._rules.get(tenant, {}).get(name, NO_RULE)
        return found.of(key, limit), found.revision

    def write(self, change: LimitChange, claimed: Mapping[tuple[str, str, int], Step]) -> None:
        """Add what the transaction writes: `claimed` are the claims that were accepted, which are all that were
        chosen."""
        change.at = self._now
        change.keys += [
            msgspec.structs.replace(row, seq=use.seq, held=use.held, tat=use.tat, freed=use.freed)
            for place, row in self._rows.items()
            if (use := self._use[place]).seq != row.seq
        ]
        for one in self._taken:
            step = claimed[one.step.tenant, one.step.run_id, one.step.no]
            change.holds += [_hold(step, one.name, grant) for grant in one.grants]
        change.parked += self._parked
        change.left += self._left
        begun = dict.fromkeys([(one.tenant, one.name, one.key, one.queue) for one in self._parked])
        look = self._now + LOOK_AGAIN_US
        for tenant, name, key, queue in sorted(begun):
            due_at = self._waited.get(((tenant, name, key), queue))
            change.begun.append(LimitLine(tenant, name, key, queue, look if due_at is None else min(look, due_at)))
        for line, is_all in self._looked:
            spot = (line.limit_key, line.queue)
            if spot in self._waited:
                change.lines.append(line._replace(due_at=self._waited[spot]))
            elif (full := self._is_full(line.limit_key)) is not None:
                change.lines.append(line._replace(due_at=full.due_at))
            elif is_all:
                # What is left in it is of runs that are set aside themselves.
                change.lines.append(line._replace(due_at=self._now + LOOK_AGAIN_US))
            if is_all:
                change.searched.append(line)

    def _is_full(self, place: LimitKey) -> Full | None:
        """Whether a key has no place for the lightest claim."""
        _, name, key = place
        rule, _ = self._rule(place, None)
        return find_place(rule, self._use[place], Demand(Limit(name=name), key, 1), self._now)


def _hold(step: Step, name: str, grant: LimitGrant) -> LimitHold:
    return LimitHold(
        tenant=step.tenant,
        run_id=step.run_id,
        no=step.no,
        fence=step.fence,
        name=grant.name,
        key=grant.key,
        seq=grant.seq,
        weight=grant.weight,
        step=name,
        held_at=step.claimed_at or 0,
    )
