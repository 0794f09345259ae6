"""When time moves a step next: one timer for each trigger after which something is due.

`enabled.py` names the timer of each trigger in its table, and compares the line with what the timer says.
"""

from __future__ import annotations

from stepkeep.conformance.hop import GuardedHop

FREE = object()
"""An expected value that the definition leaves open."""


def free(hop: GuardedHop) -> object:
    """A worker or a handler chooses it; the guards check its bounds."""
    return FREE


def never(hop: GuardedHop) -> object:
    return None


def unchanged(hop: GuardedHop) -> object:
    return hop.step.due_at if hop.step.is_timer_known else FREE


def at_once_if_retrying(hop: GuardedHop) -> object:
    return hop.line.at if hop.line.target == "retrying" else None


def until_completed(hop: GuardedHop) -> object:
    return _after(hop.line.at, hop.rule.completion_deadline if hop.rule else None)


def opened(hop: GuardedHop) -> object:
    """When a step that opened here is due: the end of its wait, its gate, its child or its elements."""
    line, place = hop.line, hop.place
    growth = None if hop.rule is None or line.trigger != "children_started" else hop.rule.growth
    if growth is not None:
        return FREE if place.kind.waits_for == "calls" else _after(line.at, growth.deadline)
    if (kept := _kept(hop)) is not None:
        return kept if hop.gate is None else hop.gate.timer(line.at, kept)
    is_own = line.trigger == place.opens_by
    if is_own and place.is_length_open:
        # Its length follows from values that the log has digests of alone.
        return FREE if line.due_at is not None and line.due_at >= line.at else "a moment that is not past"
    if is_own and place.wakes_at is not None:
        return max(place.wakes_at, line.at)
    if hop.gate is not None and line.trigger in ("gate_opened", "held"):
        return hop.gate.timer(line.at, _after(line.at, hop.gate.deadline))
    return _after(line.at, place.opens_for_us) if is_own else None


def _kept(hop: GuardedHop) -> int | None:
    """The end of a wait or a gate that a migrated run opens again: that of the run before it, and never a later one
    than a new opening would have."""
    line = hop.line
    if hop.kept is None or line.seq != 1 or line.trigger not in ("gate_opened", "held", "wait_opened"):
        return None
    kept = max(hop.kept, line.at)
    lasts = hop.gate.deadline if hop.gate is not None else hop.place.opens_for_us
    limit = hop.place.wakes_at if hop.place.wakes_at is not None else _after(line.at, lasts)
    return kept if limit is None else min(kept, max(limit, line.at))


def reminded(hop: GuardedHop) -> object:
    return _of_open_gate(hop, escalates=False)


def escalated(hop: GuardedHop) -> object:
    return _of_open_gate(hop, escalates=True)


def _of_open_gate(hop: GuardedHop, *, escalates: bool) -> object:
    gate, at, known = hop.gate, hop.line.at, hop.step.open_gate
    if gate is None:
        return None
    if known is None:
        return FREE
    if not escalates:
        return gate.timer(at, known.due_at)
    return gate.timer(at, _after(at, gate.levels[min(known.level + 1, len(gate.levels) - 1)].deadline))


def retried(hop: GuardedHop) -> object:
    """The pause after a failure; where the log hides how many attempts count, one of those that the policy has."""
    if hop.is_budget_known or "retry_in_us" in hop.asked:
        return hop.line.at + pause_us(hop)
    retry, line = hop.place.retry, hop.line
    most = min(line.attempt or 1, retry.max_attempts)
    ends = [line.at + max(retry.delay_us(line.owner, hop.place.no, counted), 0) for counted in range(1, most + 1)]
    return FREE if line.due_at in ends else ends[0]


def pause_us(hop: GuardedHop) -> int:
    """The pause before the next attempt: that of the definition, or what the handler asked for."""
    asked = hop.asked.get("retry_in_us")
    if type(asked) is int:
        return hop.place.retry.asked_us(asked)
    return max(hop.place.retry.delay_us(hop.line.owner, hop.place.no, max(hop.counted, 1)), 0)


def earliest(hop: GuardedHop) -> int:
    """The earliest moment of a deadline whose beginning is hidden: it began after the step was seen the last time."""
    place, source, rule = hop.place, hop.line.source, hop.rule
    if source == "awaiting_children" and rule is not None and rule.child is not None and not place.kind.owns:
        return hop.step.seen_at + (rule.child.deadline or 0)
    if source == "awaiting_completion":
        return hop.step.seen_at + ((rule.completion_deadline if rule else None) or 0)
    is_open = source in ("awaiting_approval", "awaiting_event") and hop.line.trigger != "reminded"
    return _earliest_of_opening(hop) if is_open else 0


def _earliest_of_opening(hop: GuardedHop) -> int:
    place, source = hop.place, hop.line.source
    # A policy may hold a step on other terms than its own, so that a hidden hold has no known deadline.
    # The wait of a handler has a deadline of its own, whose claim the dialect may hide.
    openings = ("wait_opened",) if source == "awaiting_event" else ("gate_opened", "held")
    if place.opens_by not in openings or hop.step.fence or hop.step.was_held:
        return 0
    lasts = place.opens_for_us if source == "awaiting_event" or hop.gate is None else hop.gate.shortest
    moment = max(hop.step.seen_at + (lasts or 0), place.wakes_at or 0)
    return moment if hop.kept is None else min(moment, hop.kept)


def _after(at: int, duration_us: int | None) -> int | None:
    return None if duration_us is None else at + duration_us
