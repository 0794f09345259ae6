"""Planted bugs in the SQL of sinks and delivery cursors, each for both stores where both can have it. Data alone."""

from __future__ import annotations

from stepkeep_lab.storecheck.planting import SqlMutant

POSTGRES, SQLITE = "postgres", "sqlite"


def _both(name: str, what: str, postgres: tuple[str, str, str], sqlite: tuple[str, str, str]) -> list[SqlMutant]:
    """The same mistake in two files: each is its name, the text, and the wrong text."""
    texts = ((POSTGRES, *postgres), (SQLITE, *sqlite))
    return [SqlMutant(f"{store}-{name}", store, file, what, old, new) for store, file, old, new in texts]


DELIVERY_MUTANTS: tuple[SqlMutant, ...] = (
    *_both(
        "cursor-not-moved",
        "an event of a run that has a cursor does not move it",
        ("emit_deliveries", "last = greatest(deliveries.last, excluded.last)", "last = deliveries.last"),
        ("emit_deliveries", "last = max(last, excluded.last)", "last = last"),
    ),
    *_both(
        "course-not-moved",
        "a transition does not move the cursors of sinks that take it",
        ("write_hot", "set last = moved.seq,", "set last = deliveries.last,"),
        ("advance_deliveries", "set last = ?3,", "set last = last + 0 * ?3,"),
    ),
    *_both(
        "delivery-fence-ignored",
        "the report of a relay whose claim was taken over counts",
        ("report_delivery", "and fence = $4 and", "and fence >= $4 and"),
        ("report_delivery", "and fence = ?4 and", "and fence >= ?4 and"),
    ),
    *_both(
        "delivery-lease-ignored",
        "what one relay sends can be claimed by another at once",
        ("claim_deliveries", "ready_at = clock.now + $5::bigint, holder", "ready_at = clock.now, holder"),
        ("claim_deliveries", "ready_at = ?4 + ?5, holder", "ready_at = ?4, holder"),
    ),
    *_both(
        "newest-delivery-first",
        "the cursor that became due last is claimed first",
        ("claim_deliveries", "order by d.ready_at", "order by d.ready_at desc"),
        ("claim_deliveries", "order by d.ready_at", "order by d.ready_at desc"),
    ),
    *_both(
        "delivery-of-quarantined",
        "events of a run that was set aside are claimed",
        (
            "claim_deliveries",
            "and (d.tenant, d.run_id) not in (select tenant, run_id from quarantine where released_at is null)",
            "",
        ),
        ("claim_deliveries", "q.run_id = d.run_id and q.released_at is null", "q.run_id = d.run_id and false"),
    ),
    *_both(
        "cursor-stranded",
        "a report makes the cursor idle although more was emitted meanwhile",
        ("report_delivery", "when last > $6 or (last = $6 and $7 < 2147483647)", "when last = $6 and $7 < 2147483647"),
        ("report_delivery", "when last > ?6 or (last = ?6 and ?7 < 2147483647)", "when last = ?6 and ?7 < 2147483647"),
    ),
    *_both(
        "dead-goes-on",
        "a transition makes a dead cursor due, behind its dead event",
        (
            "write_hot",
            "case when deliveries.dead_at is null then coalesce(deliveries.ready_at, (select now from clock)) end",
            "coalesce(deliveries.ready_at, (select now from clock)), dead_at = null",
        ),
        (
            "advance_deliveries",
            "ready_at = case when dead_at is null then coalesce(ready_at, ?4) end",
            "dead_at = null, ready_at = coalesce(ready_at, ?4)",
        ),
    ),
    *_both(
        "redrive-loses",
        "a redrive passes over the dead event and all after it",
        ("redrive_delivery", "attempts = 0,", "attempts = 0, sent = last, sent_number = 2147483647,"),
        ("redrive_delivery", "attempts = 0,", "attempts = 0, sent = last, sent_number = 2147483647,"),
    ),
    *_both(
        "redrive-of-living",
        "a redrive makes a cursor due that is not dead",
        ("redrive_delivery", "and dead_at is not null", "and fence >= 0"),
        ("redrive_delivery", "and dead_at is not null", "and fence >= 0"),
    ),
    *_both(
        "drop-beyond",
        "an event can be dropped that is not there yet",
        ("drop_delivery", " and $5::bigint <= last", ""),
        ("drop_delivery", " and ?5 <= last", ""),
    ),
    *_both(
        "drop-of-living",
        "an event can be dropped that is not dead",
        ("drop_delivery", "and dead_at is not null", "and fence >= 0"),
        ("drop_delivery", "and dead_at is not null", "and fence >= 0"),
    ),
    *_both(
        "drop-unrecorded",
        "a drop leaves no record",
        (
            "insert_delivery_action",
            "values ($1, stepkeep_now() + $2::bigint, $3, $4, $5, $6::uuid, $7, $8, $9)",
            "select $1, stepkeep_now() + $2::bigint, $3, $4, $5, $6::uuid, $7, $8, $9 where $4::text <> 'dropped'",
        ),
        (
            "insert_delivery_action",
            "values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            "select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 where ?4 <> 'dropped'",
        ),
    ),
    *_both(
        "dead-not-counted",
        "a sink with dead events is removed as if all were delivered",
        ("count_undelivered", "(ready_at is not null or dead_at is not null)", "ready_at is not null"),
        ("count_undelivered", "(ready_at is not null or dead_at is not null)", "ready_at is not null"),
    ),
    *_both(
        "cursors-of-all-deleted",
        "the removal of one sink deletes the cursors of all",
        ("delete_sink_deliveries", "and sink = $2", "and sink >= $2"),
        ("delete_sink_deliveries", "and sink = ?2", "and sink >= ?2"),
    ),
    *_both(
        "future-due",
        "a sink is found due whose cursors wait for a retry",
        ("find_due_sinks", "and d.ready_at <= (select stepkeep_now() + $2::bigint)", "and $2::bigint is not null"),
        ("find_due_sinks", "and d.ready_at <= ?2", "and ?2"),
    ),
    *_both(
        "worker-cursor-not-moved",
        "a transition of a worker that has a cursor does not move it",
        ("emit_worker_deliveries", "last = greatest(deliveries.last, excluded.last)", "last = deliveries.last"),
        ("emit_worker_deliveries", "last = max(deliveries.last, excluded.last)", "last = last"),
    ),
    *_both(
        "runs-for-worker-sinks",
        "a run gets a cursor of a sink that takes nothing of runs",
        ("insert_runs", "sinks.takes & 14 <> 0", "sinks.takes & 30 <> 0"),
        ("start_deliveries", "sinks.takes & 14", "sinks.takes & 30"),
    ),
    *_both(
        "dead-run-deleted",
        "a run with a dead event is deleted",
        ("lock_finished", "(c.ready_at is not null or c.dead_at is not null)", "c.ready_at is not null"),
        ("lock_finished", "(c.ready_at is not null or c.dead_at is not null)", "c.ready_at is not null"),
    ),
    SqlMutant(
        "postgres-delivery-claim-waits",
        POSTGRES,
        "claim_deliveries",
        "a claim of cursors waits for a transaction that emits",
        "for update skip locked",
        "for update",
    ),
)
