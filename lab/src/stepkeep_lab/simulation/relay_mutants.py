"""Planted bugs of the relay and of delivery cursors. They are hunted in scenarios `with_sinks`."""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

RELAY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "relay-forgets-part",
        "after a failure the events before it are not reported as delivered",
        (
            Edit(
                "worker.chores.relay:Relay._deliver",
                "work.acknowledged((event.seq, event.number))",
                "work.attempts = 0",
            ),
        ),
    ),
    Mutant(
        "relay-skips-failed",
        "an event that fails is passed over, and the next one is sent",
        (
            Edit(
                "worker.chores.relay:Relay._failed",
                "await self._report(work.report(attempts=attempts, retry_us=retry_us, is_dead=is_dead, error=why))",
                "work.acknowledged((work.cursor.last, 2**31 - 1)); await self._report(work.report())",
            ),
        ),
    ),
    Mutant(
        "dead-goes-on",
        "an event that a run emits makes its dead cursor due again",
        (
            Edit(
                "simulation.delivery_tables:_due",
                "if cursor.dead_at is not None:\n        return cursor",
                "if cursor.dead_at is not None:\n        return replace(cursor, ready_at=now, dead_at=None)",
            ),
        ),
    ),
    Mutant(
        "cursor-stranded",
        "a report makes the cursor idle, although more was emitted during the delivery",
        (
            Edit(
                "simulation.delivery_tables:ModelDeliveries._reported",
                "is_left = row.last > one.sent or (row.last == one.sent and one.sent_number < WHOLE)",
                "is_left = one.sent_number < WHOLE",
            ),
        ),
    ),
    Mutant(
        "cursor-not-moved",
        "an event of a run whose cursor exists does not move it",
        (
            Edit(
                "simulation.delivery_tables:DeliveryRows.moved_by",
                "put(_due(replace(cursor, last=max(cursor.last, entry.seq)), now))",
                "put(cursor if there else _due(cursor, now))",
            ),
        ),
    ),
    Mutant(
        "lease-ignored",
        "a relay claims what another one is sending",
        (
            Edit(
                "simulation.delivery_tables:ModelDeliveries.claim",
                "claimed = replace(one, fence=one.fence + 1, lease_until=until, ready_at=until, holder=holder)",
                "claimed = replace(one, fence=one.fence + 1, lease_until=until, ready_at=now, holder=holder)",
            ),
        ),
    ),
    Mutant(
        "order-of-numbers",
        "events of one entry are sent in the order of their types",
        (
            Edit(
                "worker.chores.relay:Relay._deliver",
                "enumerate(todo.events, 1)",
                "enumerate(sorted(todo.events, key=lambda one: (-one.seq, one.type)), 1)",
            ),
        ),
    ),
)
