"""Planted bugs in the rules that see below a step and count persons: the generated ways find each of them.

The simulator has few people and no duties below a step, so that it would meet none of these.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stepkeep_lab.simulation.mutation import Edit, Mutant, planted
from tests.databases import migrated_file
from tests.people.test_generated_ways import play_all
from tests.people.ways.play import Case


def bug(name: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, name.replace("-", " "), (Edit(where, old, new),))


def asked(start: str) -> Case:
    return Case("requester", "none", "gate", "top", start, "direct", "self")


def gone_on(kind: str, wrapper: str, course: str, trick: str = "self") -> Case:
    return Case("requester", "none", kind, wrapper, "start", course, trick)


def below(duty: str, deed: str, kind: str = "gate") -> Case:
    return Case(duty, deed, kind, "top", "start", "direct", "self")


EYES = Case("four_eyes", "plain", "gate", "top", "start", "direct", "dan_first")
LENT = Case("four_eyes", "plain", "gate", "top", "start", "direct", "dan_then_deb")
CARRIED = Case("four_eyes", "plain", "gate", "top", "start", "rerun", "dan_then_deb")

OWN = "same_names([asked.actor], (*persons.decided, *persons.completed))"

BUGS = [
    (
        bug("elements-unseen", "kernel.people.persons:persons_of", ", *rows_below(plan, rows, no)", ""),
        below("executed", "map"),
    ),
    (bug("carried-unseen", "kernel.people.persons:_own", "note.persons is None", "True"), below("decides", "child")),
    (
        bug("executors-lost", "kernel.people.persons:_own", "{*executors, *earlier}", "{*earlier}"),
        below("executed", "loop"),
    ),
    (
        bug("deciders-lost", "kernel.people.persons:_own", "{*note.deciders, *(names if is_decided else ())}", "()"),
        below("distinct", "plain"),
    ),
    (bug("lent-lost", "kernel.people.persons:joined", "for pair in one.lent", "for pair in ()"), LENT),
    (
        bug("lent-forgotten", "kernel.people.votes:_count", "(*_lent(step), (event.actor, voice.on_behalf_of))", "()"),
        EYES,
    ),
    (
        bug(
            "child-untold",
            "operations.children.children:ChildSweep._persons",
            "persons_in(rows, involved.executors)",
            "Persons()",
        ),
        below("decides", "child"),
    ),
    (
        bug("child-executors-untold", "operations.children.children:ChildSweep._persons", "involved.executors)", "{})"),
        below("executed", "child"),
    ),
    (
        bug(
            "news-dropped",
            "kernel.composition.children:child_ended",
            "(note.persons, event.persons)",
            "(note.persons,)",
        ),
        below("decides", "child"),
    ),
    (
        bug(
            "adoption-drops-persons",
            "operations.continuation.going_on:_continuation",
            "persons=carried(persons_of(old, every, row.no, executors)),",
            "",
        ),
        CARRIED,
    ),
    (
        bug("owner-is-not-the-place", "kernel.plan:Plan.within", "planned.phase is Phase.MAIN", "False"),
        below("distinct", "plain", "flow"),
    ),
    (bug("names-count", "kernel.people.separation:_four_eyes", "not same_names(one, two)", "one != two"), EYES),
    (
        bug(
            "own-decision-adopted",
            "kernel.composition.adoption:decided_anew",
            OWN,
            "False",
        ),
        gone_on("gate", "child", "own_retry"),
    ),
    (
        bug(
            "own-decision-by-letters",
            "kernel.composition.adoption:decided_anew",
            OWN,
            "asked.actor in (*persons.decided, *persons.completed)",
        ),
        gone_on("gate", "top", "own_retry", "case"),
    ),
    (
        bug(
            "other-input-adopted",
            "kernel.composition.adoption:decided_anew",
            "bool(gates) or _is_decided(persons) or any(note.persons is None for note in carriers)",
            "False",
        ),
        gone_on("policy", "top", "other_fork"),
    ),
    (
        bug("unasked-adopted", "kernel.composition.adoption:_asked_anew", "_may_ask(plan.steps[no])", "False"),
        gone_on("large_flow", "top", "other_fork"),
    ),
    (
        bug(
            "informants-adopted",
            "kernel.composition.adoption:_asked_anew",
            "{edge.step: Why.INFORMS for edge in step.depends_on}",
            "{}",
        ),
        gone_on("derived_gate", "top", "other_fork"),
    ),
    (
        bug(
            "unjudged-adopted", "kernel.composition.adoption:_asked_anew", '"input" in one.reads', "False and one.reads"
        ),
        gone_on("large_policy", "top", "other_fork"),
    ),
    (bug("starter-forgotten", "kernel.decide.decide:start", "event.actor not in before", "False"), asked("idle_by")),
    (bug("emitter-forgotten", "operations.triggers.events:emit", "asked=(caller.actor,)", "asked=()"), asked("event")),
    (
        bug(
            "adder-forgotten",
            "operations.triggers.firing:Firer._request",
            "{*kept.asked, row.created_by}",
            "{*kept.asked}",
        ),
        asked("every"),
    ),
    (
        bug("backfiller-forgotten", "operations.triggers.firing:Firer._request", "{job.created_by}", "set()"),
        asked("backfill"),
    ),
    (
        bug(
            "end-forgets", "operations.triggers.endings:_ended", "asked=asked_names(requesters_of(record.details)),", ""
        ),
        asked("ended"),
    ),
    (
        bug(
            "emitting-run-forgets",
            "operations.triggers.events:consume",
            "asked_names(requesters_of(source.details))",
            "()",
        ),
        asked("emitted"),
    ),
]


@pytest.mark.parametrize(("mutant", "case"), BUGS, ids=[mutant.name for mutant, _ in BUGS])
async def test_a_planted_bug_opens_a_way_that_is_found(tmp_path: Path, mutant: Mutant, case: Case) -> None:
    with planted(mutant):
        found = await play_all(migrated_file(tmp_path / "planted.db"), "engine", [(0, case)])
    assert found, f"{mutant.what}, and {case} passes"


async def test_the_same_ways_are_closed_without_a_bug(tmp_path: Path) -> None:
    chosen = list(enumerate(dict.fromkeys(case for _, case in BUGS)))
    assert not await play_all(migrated_file(tmp_path / "sound.db"), "engine", chosen)
