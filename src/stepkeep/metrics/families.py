"""Turns counts into the metric families of the Prometheus client library, which writes the text.

It reads plain counters and decides nothing. `exposition` calls it for each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from stepkeep.dialects.run.machine import RUN, STEP
from stepkeep.operations.pipeline.measures import NEW, Histogram, Measures

RUNNING = "RUNNING"

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Values = Mapping[tuple[str, ...], float]


def counter(name: str, values: Values) -> CounterMetricFamily:
    """A counter with a value for each combination of labels."""
    known = METRICS[name]
    family = CounterMetricFamily(name.removesuffix("_total"), known.help, labels=known.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def gauge(name: str, values: Values) -> GaugeMetricFamily:
    """A gauge with a value for each combination of labels."""
    known = METRICS[name]
    family = GaugeMetricFamily(name, known.help, labels=known.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def histogram(name: str, values: Mapping[tuple[str, ...], Histogram]) -> HistogramMetricFamily:
    """A histogram for each combination of labels."""
    known = METRICS[name]
    family = HistogramMetricFamily(name, known.help, labels=known.labels)
    for labels, found in values.items():
        total, buckets = 0, []
        for bound, count in zip((*map(str, found.bounds), "+Inf"), found.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(labels, buckets=buckets, sum_value=found.total)
    return family


def _in_words(changes: Mapping[tuple[str, str], int], shows: Mapping[str, str], words: Iterable[str]) -> Values:
    """Changes of state in the words of seed 001. Every word has a value, so that a rate begins at zero.

    The seed has no word for a run that validates, stops or compensates: it is still RUNNING.
    """
    found: dict[tuple[str, ...], float] = {(word,): 0.0 for word in words}
    for (before, after), count in changes.items():
        word = shows.get(after, RUNNING)
        if before == NEW or shows.get(before, RUNNING) != word:
            found[word,] = found.get((word,), 0.0) + count
    return found


def _entered(changes: Mapping[tuple[str, str], int]) -> Values:
    found: Counter[tuple[str, ...]] = Counter()
    for (_, after), count in changes.items():
        found[after,] += count
    return found


def _by(counts: Mapping[Any, int]) -> Values:
    return {(str(state),): count for state, count in counts.items()}


def of_seed(measures: Measures) -> list[Family]:
    """The metrics that seed 001 names."""
    return [
        counter("runs_total", _in_words(measures.runs, RUN.shows, RUN.states)),
        counter("steps_total", _in_words(measures.steps, STEP.shows, STEP.states)),
        histogram("step_execution_duration_seconds", {(): measures.attempt_seconds}),
        counter("step_retries_total", {(): measures.retries}),
        histogram("worker_claim_latency_seconds", {(): measures.claim_seconds}),
    ]


def of_process(measures: Measures) -> list[Family]:
    """What this process committed."""
    return [
        counter("stepkeep_runs_entered_total", _entered(measures.runs)),
        counter("stepkeep_steps_entered_total", _entered(measures.steps)),
        counter("stepkeep_attempts_total", measures.attempts),
        counter("stepkeep_claims_total", {(): measures.claims}),
        counter("stepkeep_fenced_writes_total", {(): measures.fenced}),
        counter("stepkeep_decisions_total", _by(measures.commits)),
        counter("stepkeep_conflicts_total", _by(measures.conflicts)),
        counter("stepkeep_fallbacks_total", _by(measures.fallbacks)),
        histogram("stepkeep_queue_wait_seconds", {(): measures.queue_wait}),
        histogram(
            "stepkeep_commit_seconds", {(str(basis),): found for basis, found in measures.commit_seconds.items()}
        ),
        histogram("stepkeep_batch_runs", {(): measures.batch_runs}),
    ]


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
