"""A line names a seed's trigger only if that trigger happened; otherwise it is an extension with a word of its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.logs import log_of
from tests.conformance.tellings import dialects, encoded, resealed, resealed_whole, stories, told, walks, whole
from tests.kernel.driver import World, gate, work

from stepkeep.conformance.certificate import certify
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects import registry
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.machine import Extension
from stepkeep.kernel.definition import SECOND, Completion, Retry
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.kernel.machine.states import Category, OnFailure
from stepkeep.operations.logs.log import canonical_machines

Line = dict[str, Any]
LIMITED = Retry(max_attempts=3)


def words(world: World, dialect: str, name: str | None = None) -> list[tuple[str, bool]]:
    """The words of a step's lines (or of the run's), each with whether it is an extension."""
    lines = told(world, registry.judged(dialect))[:-1]
    chosen = [line for line in lines if line["metadata"].get("step") == name]
    return [(line["trigger"], "extension" in line["metadata"]) for line in chosen]


def one_of_two_fails() -> World:
    world = World(work("a"), work("b"), work("c", "a"))
    world.claim("b")
    world.fail("a")
    world.finish("b")
    return world


def fails(category: Category, times: int = 1) -> World:
    world = World(work("a", retry=LIMITED))
    for _ in range(times):
        world.fail("a", category)
        world.pass_time(60 * SECOND)
        if world.row("a").state == "retrying":
            world.tick("a")
    return world


def handed_back() -> World:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Released())
    return world


def rejected() -> World:
    world = World(gate("sign"), work("a", "sign"))
    world.reject("sign")
    return world


def timed_out() -> World:
    world = World(work("a"), timeout=60 * SECOND)
    world.claim("a")
    world.later(61 * SECOND)
    world.later(31 * SECOND)
    return world


def only_a_task_that_is_not_critical_fails() -> World:
    world = World(work("a", on_failure=OnFailure.CONTINUE), work("b"))
    world.fail("a")
    world.finish("b")
    return world


def expired_completion() -> World:
    world = World(work("a", completion=Completion.MANUAL, completion_deadline=60 * SECOND))
    world.finish("a")
    world.later(61 * SECOND, "a")
    return world


@pytest.mark.parametrize(
    ("story", "dialect", "name", "word", "is_extension"),
    [
        (one_of_two_fails, "run", "c", "Run stopped", True),
        (one_of_two_fails, "workstream", "c", "cancelled", True),
        (lambda: fails(Category.VALIDATION), "run", "a", "Terminal failure", True),
        (lambda: fails(Category.TRANSIENT, 3), "run", "a", "Attempts exhausted", False),
        (lambda: fails(Category.VALIDATION), "workstream", "a", "not_retryable", True),
        (lambda: fails(Category.TRANSIENT, 3), "workstream", "a", "execution_failed", False),
        (rejected, "run", None, "Gate refused", True),
        (handed_back, "run", "a", "released", True),
        (handed_back, "linear", "a", "released", True),
        (lambda: fails(Category.TRANSIENT, 1), "linear", "a", "Retry", False),
        (only_a_task_that_is_not_critical_fails, "workstream", None, "task_failed", True),
        (one_of_two_fails, "workstream", None, "critical_task_failed", False),
        (timed_out, "workstream", None, "time_limit_exceeded", True),
        (timed_out, "workstream", "a", "workstream_ended", True),
        (timed_out, "ioa", None, "Workflow timeout", False),
        (expired_completion, "action", "a", "deadline_passed", True),
    ],
)
def test_the_word_is_what_happened(story: Any, dialect: str, name: str | None, word: str, is_extension: bool) -> None:
    assert (word, is_extension) in words(story(), dialect, name)


def test_a_cancel_by_a_user_has_the_seeds_words() -> None:
    world = World(work("a"), work("b", "a"))
    world.claim("a")
    world.cancel()
    assert words(world, "run", "a")[-1] == ("Run cancel", False)
    assert words(world, "run")[-1] == ("POST /runs/{id}/cancel", False)
    assert words(world, "workstream", "a")[-1] == ("user_cancelled", False)


def falsified(lines: list[Line], judged: JudgedDialect) -> list[Line] | None:
    """The log with one seed's word where another word is true; None if there is no such line."""
    views = {f"{view.noun}_state_transition": view for view in judged.views}
    for line in lines[:-1]:
        others = views[line["event_type"]].listed(line["from_state"], line["to_state"])
        false = [one for one in others if one.trigger and one.trigger != line["trigger"]]
        if false:
            line["trigger"] = false[0].trigger
            line["metadata"].pop("extension", None)
            if isinstance(false[0], Extension):
                line["metadata"]["extension"] = True
            return resealed(lines)
    return None


@pytest.mark.parametrize("judged", dialects(), ids=lambda judged: judged.name)
def test_a_word_that_its_ground_does_not_cover_is_found(judged: JudgedDialect) -> None:
    found = 0
    for world in (*stories(), one_of_two_fails(), rejected(), timed_out(), handed_back()):
        lines = falsified(told(world, judged), judged)
        if lines is not None:
            report = replay_lines(encoded(lines), judged)
            assert any("ground" in finding.message for finding in report.findings)
            found += 1
    assert found or judged.name in ("toy", "action")


def test_the_certificate_compares_words_with_the_journal() -> None:
    """A liar changes the word and the ground together; the canonical journal still tells what happened."""
    judged = registry.judged("run")
    world = one_of_two_fails()
    canonical = log_of(world)
    lines = whole(world, judged)
    assert certify(canonical, {"run": encoded(lines)}, canonical_machines(), {"run": judged}).ok
    liar = next(line for line in lines if line["trigger"] == "Run stopped")
    liar["trigger"] = "Run cancel"
    liar["metadata"].pop("extension")
    liar["metadata"]["ground"] = "run_cancelled"
    telling = encoded(resealed_whole(lines, canonical=False))
    refused = certify(canonical, {"run": telling}, canonical_machines(), {"run": judged})
    assert any("'Run stopped'" in finding.message for finding in refused.dialects[0].findings)


@pytest.mark.parametrize("judged", dialects()[:5], ids=lambda judged: judged.name)
def test_every_word_of_random_runs_is_listed(judged: JudgedDialect) -> None:
    views = {f"{view.noun}_state_transition": view for view in judged.views}
    for world in walks(40, seed=11):
        for line in told(world, judged)[:-1]:
            said = line["metadata"]
            ground = said.get("ground", said["because"])
            listed = views[line["event_type"]].word(line["from_state"], line["to_state"], said["because"], ground)
            assert listed is not None, line
            assert (listed.trigger or said["because"]) == line["trigger"]
            assert isinstance(listed, Extension) == ("extension" in said)
