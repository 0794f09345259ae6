"""Turns counts into the metric families of the Prometheus client library, which writes the text.

It reads plain counters and decides nothing. `exposition` calls it for each scrape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from stepkeep.dialects.run.machine import RUN, STEP
from stepkeep.metrics.names import METRICS
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
