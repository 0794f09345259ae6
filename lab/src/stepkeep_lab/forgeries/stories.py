"""Forgeries that tell another story: lines removed, repeated, moved or invented, and fields changed together.

Each function takes a fresh copy of a true log and a source of chance, and returns the changed lines or None. `kinds.py`
collects them in `STORIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import Any

from stepkeep_lab.forgeries.fields import kind_of
from stepkeep_lab.forgeries.seals import redefined

Line = dict[str, Any]
Forge = Callable[[list[Line], Random], list[Line] | None]
SECOND = 1_000_000


# -- choosing --------------------------------------------------------------------------------------------------------
def moves(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if kind_of(line) in ("run", "step")]


def of_steps(lines: Iterable[Line], *because: str) -> list[Line]:
    """The lines of steps, of these canonical triggers if any are named."""
    steps = [line for line in lines if kind_of(line) == "step"]
    return [line for line in steps if not because or cause_of(line) in because]


def cause_of(line: Line) -> str:
    return str(line["metadata"].get("because", line["trigger"]))


def step_of(line: Line) -> Any:
    return line["metadata"].get("step")


def without(lines: list[Line], dropped: list[Line]) -> list[Line] | None:
    gone = {id(line) for line in dropped}
    return [line for line in lines if id(line) not in gone] if dropped else None


def stamp(line: Line, at: int) -> None:
    """Give a line another time, and the timestamp that belongs to it."""
    from stepkeep.conformance.schema import timestamp_of

    line["metadata"]["at"], line["timestamp"] = at, timestamp_of(at)


# -- what is removed -------------------------------------------------------------------------------------------------
def drop_move(lines: list[Line], random: Random) -> list[Line] | None:
    return without(lines, [random.choice(moves(lines))])


def drop_run_line(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line for line in moves(lines) if kind_of(line) == "run"]
    return without(lines, [random.choice(chosen)]) if chosen else None


def drop_step(lines: list[Line], random: Random) -> list[Line] | None:
    names = sorted({step_of(line) for line in of_steps(lines)})
    if not names:
        return None
    name = random.choice(names)
    return without(lines, [line for line in lines if step_of(line) == name])


def drop_failed_step(lines: list[Line], random: Random) -> list[Line] | None:
    failed = sorted({step_of(line) for line in of_steps(lines) if line["severity"] == "error"})
    if not failed:
        return None
    name = random.choice(failed)
    return without(lines, [line for line in lines if step_of(line) == name])


def drop_attempt(lines: list[Line], random: Random) -> list[Line] | None:
    """One attempt whole: from its claim to the line that makes the step ready again."""
    claims = of_steps(lines, "claimed")
    retried = [one for one in claims if any(_ends_attempt(line, one) for line in of_steps(lines))]
    if not retried:
        return None
    claim = random.choice(retried)
    name, fence = step_of(claim), claim["metadata"].get("fence")
    return without(
        lines, [line for line in of_steps(lines) if step_of(line) == name and line["metadata"].get("fence") == fence]
    )


def _ends_attempt(line: Line, claim: Line) -> bool:
    same = step_of(line) == step_of(claim) and line["metadata"].get("fence") == claim["metadata"].get("fence")
    return same and cause_of(line) in ("retry_scheduled", "lease_lost", "released")


def drop_retry(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = of_steps(lines, "retry_due")
    return without(lines, [random.choice(chosen)]) if chosen else None


def drop_end(lines: list[Line], random: Random) -> list[Line] | None:
    """The last line of the run itself; the closing line says the state before it."""
    runs = [line for line in moves(lines) if kind_of(line) == "run"]
    if len(runs) < 2:
        return None
    head, before = lines[-1], runs[-1]["from_state"]
    head["from_state"] = head["to_state"] = head["metadata"]["state"] = before
    return without(lines, [runs[-1]])


def drop_tail(lines: list[Line], random: Random) -> list[Line] | None:
    cut = random.randrange(2, max(len(lines) - 1, 3))
    kept = [*lines[:cut], lines[-1]]
    runs = [line for line in moves(kept) if kind_of(line) == "run"]
    if not runs or cut >= len(lines) - 1:
        return None
    head, state = lines[-1], runs[-1]["to_state"]
    head["from_state"] = head["to_state"] = head["metadata"]["state"] = state
    stamp(head, moves(kept)[-1]["metadata"]["at"])
    return kept


def drop_head(lines: list[Line], random: Random) -> list[Line] | None:
    return lines[:-1]


def drop_definition(lines: list[Line], random: Random) -> list[Line] | None:
    return lines[1:]


def drop_entry(lines: list[Line], random: Random) -> list[Line] | None:
    seq = random.choice(sorted({line["metadata"]["seq"] for line in moves(lines)}))
    return without(lines, [line for line in moves(lines) if line["metadata"]["seq"] == seq])


def drop_undo(lines: list[Line], random: Random) -> list[Line] | None:
    hooks = sorted({step_of(line) for line in of_steps(lines) if str(step_of(line)).startswith("undo:")})
    return without(lines, [line for line in lines if step_of(line) == random.choice(hooks)]) if hooks else None


# -- what is added or moved ------------------------------------------------------------------------------------------
def repeat_move(lines: list[Line], random: Random) -> list[Line] | None:
    place = lines.index(random.choice(moves(lines)))
    return [*lines[: place + 1], deepcopy(lines[place]), *lines[place + 1 :]]


def repeat_entry(lines: list[Line], random: Random) -> list[Line] | None:
    seq = random.choice(sorted({line["metadata"]["seq"] for line in moves(lines)}))
    entry = [line for line in moves(lines) if line["metadata"]["seq"] == seq]
    place = lines.index(entry[-1]) + 1
    copies = deepcopy(entry)
    for line in copies:
        line["metadata"]["seq"] = f"{seq}+"
    return [*lines[:place], *copies, *lines[place:]]


def swap_moves(lines: list[Line], random: Random) -> list[Line] | None:
    places = [place for place, line in enumerate(lines[:-1]) if place and kind_of(lines[place + 1]) != "head"]
    if not places:
        return None
    place = random.choice(places)
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    return lines


def swap_entries(lines: list[Line], random: Random) -> list[Line] | None:
    numbers = sorted({line["metadata"]["seq"] for line in moves(lines)})
    if len(numbers) < 3:
        return None
    first = random.choice(numbers[1:-1])
    one = [line for line in moves(lines) if line["metadata"]["seq"] == first]
    other = [line for line in moves(lines) if line["metadata"]["seq"] == first + 1]
    if not other:
        return None
    one[0]["metadata"]["at"], other[0]["metadata"]["at"] = other[0]["metadata"]["at"], one[0]["metadata"]["at"]
    early, late = one[0]["metadata"]["at"], other[0]["metadata"]["at"]
    for line in one:
        stamp(line, early)
    for line in other:
        stamp(line, late)
    rest = without(lines, [*one, *other]) or []
    place = lines.index(one[0])
    return [*rest[:place], *other, *one, *rest[place:]]


def invent_step(lines: list[Line], random: Random) -> list[Line] | None:
    names = sorted({step_of(line) for line in of_steps(lines)})
    if not names:
        return None
    model = random.choice(names)
    told: list[Line] = []
    number = max(line["metadata"]["no"] for line in of_steps(lines)) + 1
    for line in lines:
        told.append(line)
        if step_of(line) == model:
            copy = deepcopy(line)
            copy["metadata"] |= {"step": "invented", "no": number}
            copy["entity_id"] = copy["entity_id"].replace(f"/{model}", "/invented")
            told.append(copy)
    return told


def invent_attempt(lines: list[Line], random: Random) -> list[Line] | None:
    """A claim and its release that never happened, before a true claim."""
    claims = of_steps(lines, "claimed")
    if not claims:
        return None
    claim = random.choice(claims)
    place = lines.index(claim)
    extra, given_up = deepcopy(claim), deepcopy(claim)
    given_up |= {"from_state": claim["to_state"], "to_state": claim["from_state"], "trigger": "released"}
    given_up["metadata"].pop("due_at", None)
    given_up["metadata"] |= {"event": "step_reported", "duration_seconds": 0.0}
    if "because" in claim["metadata"]:
        given_up["metadata"]["because"] = "released"
    for line in lines[place:]:
        if step_of(line) == step_of(claim) and "fence" in line["metadata"]:
            line["metadata"]["fence"] += 1
    return [*lines[:place], extra, given_up, *lines[place:]]


def compensate_against_policy(lines: list[Line], random: Random) -> list[Line] | None:
    """Undo lines of an abort: the run goes to its undoing state in place of its end."""
    ends = [line for line in moves(lines) if kind_of(line) == "run" and line["severity"] == "critical"]
    if not ends or any(str(step_of(line)).startswith("undo:") for line in lines):
        return None
    end = ends[-1]
    extra = deepcopy(end)
    undoing = {
        "from_state": end["from_state"],
        "to_state": "compensating",
        "trigger": "undo_started",
        "severity": "info",
    }
    extra |= undoing
    end["from_state"] = "compensating"
    place = lines.index(end)
    return [*lines[:place], extra, *lines[place:]]


# -- what is changed together ----------------------------------------------------------------------------------------
def attempt_99(lines: list[Line], random: Random) -> list[Line] | None:
    return _miscount(lines, random, 98)


def attempt_off_by_one(lines: list[Line], random: Random) -> list[Line] | None:
    return _miscount(lines, random, 1)


def _miscount(lines: list[Line], random: Random, by: int) -> list[Line] | None:
    chosen = [line for line in of_steps(lines) if "attempt" in line["metadata"]]
    if not chosen:
        return None
    said = random.choice(chosen)["metadata"]
    said["attempt"] += by
    if "retry_count" in said:
        said["retry_count"] += by
    return lines


def all_attempts_counted_more(lines: list[Line], random: Random) -> list[Line] | None:
    claims = of_steps(lines, "claimed")
    if not claims:
        return None
    name = step_of(random.choice(claims))
    for line in of_steps(lines):
        if step_of(line) == name and "attempt" in line["metadata"]:
            line["metadata"]["attempt"] += 1
            line["metadata"]["retry_count"] += 1
    return lines


def longer_than_its_step(lines: list[Line], random: Random) -> list[Line] | None:
    return _lasting(lines, random, 4_000.0)


def shorter_than_it_was(lines: list[Line], random: Random) -> list[Line] | None:
    return _lasting(lines, random, -0.5)


def _lasting(lines: list[Line], random: Random, by: float) -> list[Line] | None:
    timed = [line["metadata"] for line in lines if "duration_seconds" in line["metadata"]]
    chosen = [said for said in timed if said["duration_seconds"] + by >= 0]
    if not chosen:
        return None
    said = random.choice(chosen)
    said["duration_seconds"] = round(said["duration_seconds"] + by, 6)
    return lines


def false_backoff(lines: list[Line], random: Random) -> list[Line] | None:
    return _due(lines, random, "retry_scheduled", 17 * SECOND)


def shorter_backoff(lines: list[Line], random: Random) -> list[Line] | None:
    return _due(lines, random, "retry_scheduled", -SECOND // 20)


def lease_given_up_early(lines: list[Line], random: Random) -> list[Line] | None:
    return _due(lines, random, "claimed", -SECOND)


def longer_lease(lines: list[Line], random: Random) -> list[Line] | None:
    return _due(lines, random, "claimed", 3_600 * SECOND)


def later_deadline(lines: list[Line], random: Random) -> list[Line] | None:
    return _due(lines, random, "gate_opened", 3_600 * SECOND)


def _due(lines: list[Line], random: Random, because: str, by: int) -> list[Line] | None:
    chosen = [line["metadata"] for line in of_steps(lines, because) if "due_at" in line["metadata"]]
    if not chosen:
        return None
    random.choice(chosen)["due_at"] += by
    return lines


def before_due(lines: list[Line], random: Random) -> list[Line] | None:
    return _early(lines, random, "retry_due", "claimed")


def timeout_before_deadline(lines: list[Line], random: Random) -> list[Line] | None:
    return _early(lines, random, "deadline_passed", "deadline_tolerated", "lease_lost", "deadline_handed_over")


def _early(lines: list[Line], random: Random, *because: str) -> list[Line] | None:
    """The entry of such a line happens at the time of the entry before it, if that is before the step is due."""
    chosen = of_steps(lines, *because)
    if not chosen:
        return None
    said = random.choice(chosen)["metadata"]
    step, seq = said["step"], said["seq"]
    entry = [line for line in moves(lines) if line["metadata"]["seq"] == seq]
    place = lines.index(entry[0])
    at = lines[place - 1]["metadata"]["at"]
    known = [line["metadata"].get("due_at") for line in lines[:place] if line["metadata"].get("step") == step]
    due_at = known[-1] if known else None
    if not known or at == entry[0]["metadata"]["at"] or (due_at is not None and at >= due_at):
        return None
    for line in entry:
        stamp(line, at)
    return lines


def foreign_fence(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line["metadata"] for line in of_steps(lines) if "fence" in line["metadata"]]
    if not chosen:
        return None
    random.choice(chosen)["fence"] += 7
    return lines


def native_words(lines: list[Line], random: Random) -> list[Line] | None:
    """A log that says it was written natively, so that no invariant is asked."""
    if lines[0]["metadata"].get("written_in") == "native":
        return None
    for line in lines:
        if "written_in" in line["metadata"]:
            line["metadata"]["written_in"] = "native"
    return lines


def native_definition(lines: list[Line], random: Random) -> list[Line] | None:
    lines[0]["metadata"]["definition"]["dialect"] = "native"
    redefined(lines)
    return native_words(lines, random)


def correlation_halfway(lines: list[Line], random: Random) -> list[Line] | None:
    for line in lines[len(lines) // 2 :]:
        line["metadata"]["correlation_id"] = "another"
    return lines


def tenant_halfway(lines: list[Line], random: Random) -> list[Line] | None:
    for line in lines[len(lines) // 2 :]:
        line["metadata"]["tenant"] = "another"
    return lines


def other_actor(lines: list[Line], random: Random) -> list[Line] | None:
    """The report of an attempt came from a worker that did not claim it."""
    chosen = [line for line in of_steps(lines) if line["metadata"]["event"] == "step_reported"]
    if not chosen:
        return None
    seq = random.choice(chosen)["metadata"]["seq"]
    for line in moves(lines):
        if line["metadata"]["seq"] == seq and line["metadata"]["event"] == "step_reported":
            line["metadata"]["actor"] = "forger"
    return lines


def other_trigger(lines: list[Line], random: Random) -> list[Line] | None:
    return _word(lines, random, "trigger")


def other_cause(lines: list[Line], random: Random) -> list[Line] | None:
    return _word(lines, random, "because")


def _word(lines: list[Line], random: Random, name: str) -> list[Line] | None:
    holders = [line if name == "trigger" else line["metadata"] for line in moves(lines)]
    words = sorted({one[name] for one in holders if name in one})
    if len(words) < 2:
        return None
    one = random.choice([one for one in holders if name in one])
    one[name] = random.choice([word for word in words if word != one[name]])
    return lines


def softer_severity(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line for line in moves(lines) if line["severity"] != "info"]
    if not chosen:
        return None
    random.choice(chosen)["severity"] = "info"
    return lines


def harder_severity(lines: list[Line], random: Random) -> list[Line] | None:
    random.choice([line for line in moves(lines) if line["severity"] == "info"])["severity"] = "error"
    return lines


def other_entity(lines: list[Line], random: Random) -> list[Line] | None:
    random.choice(moves(lines))["entity_id"] = "somewhere/else"
    return lines


def other_end(lines: list[Line], random: Random) -> list[Line] | None:
    """The run ends in another state of the log, and the closing line agrees."""
    runs = [line for line in moves(lines) if kind_of(line) == "run"]
    states = sorted({line["to_state"] for line in lines[1:]} - {runs[-1]["to_state"]})
    state = random.choice(states)
    runs[-1]["to_state"] = state
    lines[-1]["from_state"] = lines[-1]["to_state"] = lines[-1]["metadata"]["state"] = state
    return lines


def failure_told_as_success(lines: list[Line], random: Random) -> list[Line] | None:
    """A step that failed ends like one that succeeded."""
    good, bad = of_steps(lines, "rules_passed"), of_steps(lines, "failed", "failed_tolerated")
    if not good or not bad:
        return None
    one, model = random.choice(bad), random.choice(good)
    one |= {name: model[name] for name in ("to_state", "trigger", "severity")}
    for name in ("category", "error"):
        one["metadata"].pop(name, None)
    if "because" in one["metadata"]:
        one["metadata"]["because"] = model["metadata"]["because"]
    return lines


def other_category(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line["metadata"] for line in lines if "category" in line["metadata"]]
    if not chosen:
        return None
    said = random.choice(chosen)
    said["category"] = "external" if said["category"] != "external" else "validation"
    return lines


def digest_of_another_output(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line for line in of_steps(lines) if "digest" in line["metadata"] and cause_of(line) != "gate_opened"]
    if not chosen:
        return None
    random.choice(chosen)["metadata"]["digest"] = "0" * 64
    return lines


def digest_of_another_prompt(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line for line in of_steps(lines, "gate_opened", "held") if "digest" in line["metadata"]]
    if not chosen:
        return None
    random.choice(chosen)["metadata"]["digest"] = "0" * 64
    return lines


def digest_of_another_input(lines: list[Line], random: Random) -> list[Line] | None:
    chosen = [line["metadata"]["detail"] for line in lines if "input" in line["metadata"].get("detail", ())]
    if not chosen:
        return None
    chosen[0]["input"] = "0" * 64
    return lines


# -- definitions -----------------------------------------------------------------------------------------------------
def definition_of_another(lines: list[Line], random: Random) -> list[Line] | None:
    """A definition with other step names, its digest recomputed everywhere."""
    for step in lines[0]["metadata"]["definition"]["steps"]:
        step["name"] = f"{step['name']}-2"
    redefined(lines)
    return lines


def definition_without_a_step(lines: list[Line], random: Random) -> list[Line] | None:
    steps = lines[0]["metadata"]["definition"]["steps"]
    if len(steps) < 2:
        return None
    steps.pop(random.randrange(len(steps)))
    redefined(lines)
    return lines


def definition_with_fewer_attempts(lines: list[Line], random: Random) -> list[Line] | None:
    retried = {step_of(line) for line in of_steps(lines, "retry_scheduled")}
    chosen = [step for step in lines[0]["metadata"]["definition"]["steps"] if step["name"] in retried]
    if not chosen:
        return None
    random.choice(chosen)["retry"]["max_attempts"] = 1
    redefined(lines)
    return lines


def limit_that_had_passed(lines: list[Line], random: Random) -> list[Line] | None:
    """A run that succeeded by a report, a message or a decision gets a timeout that had passed by then."""
    runs = [line for line in moves(lines) if kind_of(line) == "run"]
    started = [line["metadata"]["at"] for line in runs if cause_of(line) == "started"]
    ends = [line["metadata"] for line in runs if cause_of(line) == "rules_passed"]
    if not started or not ends or ends[-1]["event"] == "time_came" or ends[-1]["at"] <= started[0]:
        return None
    lines[0]["metadata"]["definition"]["timeout"] = random.randint(1, ends[-1]["at"] - started[0])
    redefined(lines)
    return lines


def message_after_its_deadline(lines: list[Line], random: Random) -> list[Line] | None:
    """The wait of a step or its handler ends by a message that came at its deadline."""
    opened: dict[Any, Line] = {}
    late: list[tuple[Line, int]] = []
    for line in of_steps(lines, "wait_opened", "waited", "wait_satisfied", "message_arrived"):
        said, before = line["metadata"], opened.get(step_of(line))
        if cause_of(line) in ("wait_opened", "waited"):
            opened[step_of(line)] = line
        elif before is not None and said["event"] == "message_arrived" and said["at"] > before["metadata"]["at"]:
            late.append((before, said["at"]))
    if not late:
        return None
    before, at = random.choice(late)
    before["metadata"]["due_at"] = at
    for step in lines[0]["metadata"]["definition"]["steps"]:
        if step["name"] == step_of(before) and cause_of(before) == "wait_opened":
            step["wait"]["deadline"] = at - before["metadata"]["at"]
    redefined(lines)
    return lines


def definition_not_redigested(lines: list[Line], random: Random) -> list[Line] | None:
    lines[0]["metadata"]["definition"]["description"] = "forged"
    return lines


STORIES: list[tuple[str, str, Forge]] = [
    (forge.__name__, what, forge)
    for forge, what in (
        (drop_move, "one line is removed"),
        (drop_run_line, "one line of the run is removed"),
        (drop_step, "a step is removed whole"),
        (drop_failed_step, "a step that failed is removed whole"),
        (drop_attempt, "an attempt is removed whole"),
        (drop_retry, "a due retry is removed"),
        (drop_end, "the end of the run is removed"),
        (drop_tail, "everything after a line is removed"),
        (drop_head, "the closing line is removed"),
        (drop_definition, "the definition is removed"),
        (drop_entry, "one transaction is removed"),
        (drop_undo, "an undo step is removed whole"),
        (repeat_move, "one line is repeated"),
        (repeat_entry, "one transaction is repeated"),
        (swap_moves, "two lines are swapped"),
        (swap_entries, "two transactions are swapped"),
        (invent_step, "a step is invented"),
        (invent_attempt, "a claim and its release are invented"),
        (compensate_against_policy, "an aborted run compensates"),
        (attempt_99, "attempt 99 of a few"),
        (attempt_off_by_one, "an attempt is miscounted by one"),
        (all_attempts_counted_more, "all attempts of a step are miscounted"),
        (longer_than_its_step, "an attempt lasts longer than its step"),
        (shorter_than_it_was, "an attempt lasts shorter than it did"),
        (false_backoff, "a backoff is longer than the policy"),
        (shorter_backoff, "a backoff is shorter than the policy"),
        (lease_given_up_early, "a lease is shorter"),
        (longer_lease, "a lease is longer"),
        (later_deadline, "the deadline of a gate is later"),
        (before_due, "a claim or a retry comes before it is due"),
        (timeout_before_deadline, "a timeout comes before its deadline"),
        (foreign_fence, "a line has a foreign fence"),
        (native_words, "the log says that it was written natively"),
        (native_definition, "the definition says that it was written natively"),
        (correlation_halfway, "the correlation id changes halfway"),
        (tenant_halfway, "the tenant changes halfway"),
        (other_actor, "a report comes from another worker"),
        (other_trigger, "a line has the trigger of another"),
        (other_cause, "a line has the canonical trigger of another"),
        (softer_severity, "a severity is softer"),
        (harder_severity, "a severity is harder"),
        (other_entity, "a line is about something else"),
        (other_end, "the run ends in another state"),
        (failure_told_as_success, "a failed step succeeds"),
        (other_category, "an error has another category"),
        (digest_of_another_output, "an output has another digest"),
        (digest_of_another_prompt, "a gate showed something else"),
        (digest_of_another_input, "the input has another digest"),
        (definition_of_another, "the definition is another one"),
        (definition_without_a_step, "the definition lacks a step"),
        (definition_with_fewer_attempts, "the definition allows one attempt"),
        (limit_that_had_passed, "the timeout of a run had passed when it succeeded"),
        (message_after_its_deadline, "a wait ends by a message at its deadline"),
        (definition_not_redigested, "the definition differs from its digest"),
    )
]
"""Each forgery with what it changes."""
