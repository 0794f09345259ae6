"""Every metric that a process may show: its name, kind, labels and meaning.

The exposition takes names from here only, and the docs, the dashboard and the alert rules are compared with it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric. `name` is what queries use, but a histogram has `_bucket`, `_sum` and `_count` after it."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _rows() -> tuple[Metric, ...]:
    c, g, h = "counter", "gauge", "histogram"
    # fmt: off
    table: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
        # Seed 001's own names and words.
        ("runs_total", c, "Runs that entered a status, in the words of the dialect run.", ("status",)),
        ("steps_total", c, "Steps that entered a status, in the words of the dialect run.", ("status",)),
        ("step_execution_duration_seconds", h, "Time from the claim of an attempt to its end.", ()),
        ("step_retries_total", c, "Attempts that failed and are followed by another one.", ()),
        ("worker_claim_latency_seconds", h, "How long a claim took.", ()),
        # What this process committed.
        ("stepkeep_runs_entered_total", c, "Runs that entered a state.", ("state",)),
        ("stepkeep_steps_entered_total", c, "Steps that entered a state.", ("state",)),
        ("stepkeep_attempts_total", c, "Attempts that ended, by state and category.", ("state", "category")),
        ("stepkeep_claims_total", c, "Steps that were claimed.", ()),
        ("stepkeep_fenced_writes_total", c, "Reports that were refused because the lease was gone.", ()),
        ("stepkeep_decisions_total", c, "Committed transactions, by what they rest on.", ("basis",)),
        ("stepkeep_conflicts_total", c, "Transactions that conflicted and were decided again.", ("basis",)),
        ("stepkeep_fallbacks_total", c, "Decisions without locks that fell back to locks.", ("basis",)),
        ("stepkeep_queue_wait_seconds", h, "Time from ready to claimed.", ()),
        ("stepkeep_commit_seconds", h, "How long a transaction took.", ("basis",)),
        ("stepkeep_batch_runs", h, "Runs changed by one transaction.", ()),
        # The process.
        ("stepkeep_build_info", g, "1; the label has the version.", ("version",)),
        ("stepkeep_loop_lag_seconds", g, "By how much the event loop was last late.", ()),
        # A worker in this process.
        ("stepkeep_worker_slots", g, "Slots of the worker, held and free.", ("worker", "use")),
        ("stepkeep_worker_utilisation", g, "Share of its slots that was used in the window.", ("worker", "window")),
        ("stepkeep_worker_loop_lag_seconds", g, "By how much the worker's last sweep was late.", ("worker",)),
        ("stepkeep_worker_claim_age_seconds", g, "Time since the last claim that the database answered.", ("worker",)),
        ("stepkeep_worker_store_up", g, "1 while the database answers the worker.", ("worker",)),
        ("stepkeep_relay_events_total", c, "Events sent, failed, dead or reported too late.", ("worker", "result")),
        # The HTTP service.
        ("stepkeep_http_requests_total", c, "Answered requests, by route template.", ("method", "route", "status")),
        ("stepkeep_http_request_seconds", h, "Time to the end of an answer; streams are not counted.", ("route",)),
        ("stepkeep_http_in_flight", g, "Requests under way, without streams.", ()),
        ("stepkeep_http_refused_total", c, "Requests refused before they were handled.", ("reason",)),
        ("stepkeep_streams", g, "Open streams, of one run or of a tenant.", ("kind",)),
        ("stepkeep_streams_cut_total", c, "Streams that were cut off because their client was too slow.", ()),
        # The database, read at most every few seconds.
        ("stepkeep_runs", g, "Live runs by state.", ("tenant", "state")),
        ("stepkeep_queue_depth", g, "Ready steps of a queue.", ("tenant", "queue")),
        ("stepkeep_count_is_rough", g, "1 where a gauge is an estimate or a lower bound.", ("tenant", "gauge")),
        ("stepkeep_queue_oldest_seconds", g, "Age of the oldest ready step of a queue.", ("tenant", "queue")),
        ("stepkeep_runs_waiting_for_slot", g, "Queued runs that wait for a slot.", ("tenant",)),
        ("stepkeep_late_timers", g, "Timers that are overdue.", ("tenant",)),
        ("stepkeep_stuck_runs", g, "Live runs that nothing can move: a defect.", ()),
        ("stepkeep_workers", g, "Workers that are not shut down; silent ones apart.", ("tenant", "state")),
        ("stepkeep_outbox_waiting", g, "Runs with events that a sink waits for.", ("tenant", "sink")),
        ("stepkeep_outbox_dead", g, "Runs with a dead event for a sink.", ("tenant", "sink")),
        ("stepkeep_outbox_lag_seconds", g, "For how long the oldest event of a sink has been due.", ("tenant", "sink")),
        ("stepkeep_store_up", g, "1 if the database answered when the gauges were read.", ()),
        ("stepkeep_store_read_seconds", g, "How long reading the gauges took.", ()),
        ("stepkeep_store_age_seconds", g, "Age of the values that were read from the database.", ()),
        ("stepkeep_store_bytes", g, "Size of the database.", ()),
        ("stepkeep_tenants_unmeasured", g, "Tenants beyond the bound, which have no gauges.", ()),
    )
    # fmt: on
    return tuple(Metric(name, kind, said, labels) for name, kind, said, labels in table)  # type: ignore[arg-type]


METRICS: dict[str, Metric] = {one.name: one for one in _rows()}
"""By name, in the order in which they are shown."""
