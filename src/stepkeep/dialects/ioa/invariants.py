"""The invariants of seed 000, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its dependencies and its policy.
"""

from __future__ import annotations

from collections.abc import Callable

from stepkeep.dialects.dialect import Invariant, Line, Say

ENDED = frozenset({"completed", "failed", "cancelled"})
SETTLED = frozenset({"completed", "failed", "skipped", "cancelled"})
GOING = frozenset({"executing", "blocked"})

Look = Callable[["Story", Line, Say], None]


class Story:
    """The state of the workflow and its steps before the current line."""

    def __init__(self) -> None:
        self.workflow: str | None = None
        self.steps: dict[str, str] = {}
        self.failed: dict[str, None] = {}
        self.after: dict[str, tuple[str, ...]] = {}
        self.policies: dict[str, str] = {}

    def take(self, line: Line) -> None:
        if is_step(line):
            name, facts = step_of(line), line["metadata"]
            self.after.setdefault(name, tuple(facts.get("depends_on", ())))
            self.policies.setdefault(name, facts.get("on_failure", ""))
            self.steps[name] = line["to_state"]
            self.failed.pop(name, None)
            if line["to_state"] == "failed":
                self.failed[name] = None
        elif is_workflow(line):
            self.workflow = line["to_state"]

    def having(self, *states: str) -> list[str]:
        """The steps in these states, in the order of the log."""
        return [name for name, state in self.steps.items() if state in states]


def is_step(line: Line) -> bool:
    return str(line["event_type"]) == "step_state_transition"


def is_workflow(line: Line) -> bool:
    return str(line["event_type"]) == "workflow_state_transition"


def step_of(line: Line) -> str:
    return str(line["metadata"]["step"])


def _watching(look: Look) -> Callable[[Say], Callable[[Line], None]]:
    """A checker that keeps the timeline and sees each transition before it is added."""

    def check(say: Say) -> Callable[[Line], None]:
        story = Story()

        def feed(line: Line) -> None:
            if is_step(line) or is_workflow(line):
                look(story, line, say)
                story.take(line)

        return feed

    return check


def _nothing_after_the_end(story: Story, line: Line, say: Say) -> None:
    if story.workflow in ENDED:
        say(f"the workflow is {story.workflow}, which is terminal, and {line['entity_id']} moves on")


def _steps_start_while_it_executes(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["to_state"] == "running" and story.workflow not in GOING:
        say(f"step {step_of(line)} starts while the workflow is {story.workflow}")


def _dependencies_first(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["to_state"] == "running":
        for other in story.after.get(step_of(line), ()):
            if story.steps.get(other) not in ("completed", "skipped"):
                say(f"step {step_of(line)} starts while {other}, which it depends on, is {story.steps.get(other)}")


def _none_starts_after_a_failure(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["to_state"] == "running" and story.failed:
        say(f"step {step_of(line)} starts after {next(iter(story.failed))} has failed")


def _skip_is_asked_for(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["from_state"] == "running":
        policy = story.policies.get(step_of(line))
        if (line["to_state"] == "skipped") != (policy == "skip") and line["to_state"] in ("skipped", "failed"):
            say(f"step {step_of(line)} has onFailure {policy} and ends {line['to_state']}")


def _completed_means_finished(story: Story, line: Line, say: Say) -> None:
    if is_workflow(line) and line["to_state"] == "completed" and story.workflow != "compensating":
        for name in story.steps:
            if story.steps[name] not in ("completed", "skipped"):
                say(f"the workflow is completed and step {name} is {story.steps[name]}")


def _failed_has_a_reason(story: Story, line: Line, say: Say) -> None:
    if is_workflow(line) and line["to_state"] == "failed" and story.workflow != "compensating":
        timed_out = line["metadata"].get("category") == "timeout"
        if not timed_out and not story.having("failed"):
            say("the workflow has failed, no step has, and it was no timeout")


def _blocked_on_a_step(story: Story, line: Line, say: Say) -> None:
    if is_workflow(line) and line["to_state"] == "blocked" and not story.having("running"):
        say("the workflow is blocked and no step waits for input")


def _only_completed_is_undone(story: Story, line: Line, say: Say) -> None:
    if is_workflow(line) and line["to_state"] == "compensating" and not story.having("completed"):
        say("the workflow compensates and no step was completed")


def _every_step_is_settled(story: Story, line: Line, say: Say) -> None:
    if is_workflow(line) and line["to_state"] in {*ENDED, "compensating"}:
        for name, state in story.steps.items():
            if state not in SETTLED:
                say(f"the workflow is {line['to_state']} and step {name} is still {state}")


INVARIANTS = (
    Invariant("nothing-after-the-end", "000 §1 completed → any (terminal)", _watching(_nothing_after_the_end)),
    Invariant(
        "steps-start-while-it-executes",
        "000 §1 executing: steps are being processed; compensating → executing must not occur",
        _watching(_steps_start_while_it_executes),
    ),
    Invariant("dependencies-first", "000 §5.1 step-d waits for both", _watching(_dependencies_first)),
    Invariant(
        "none-starts-after-a-failure", "000 §3.3 abort, compensate stop it", _watching(_none_starts_after_a_failure)
    ),
    Invariant("skip-is-asked-for", "000 §2 skipped (onFailure: skip)", _watching(_skip_is_asked_for)),
    Invariant("completed-means-finished", "000 §1 completed: all steps", _watching(_completed_means_finished)),
    Invariant("failed-has-a-reason", "000 §1 failed: one or more steps; §3.4", _watching(_failed_has_a_reason)),
    Invariant("blocked-on-a-step", "000 §1 blocked: a step requires human input", _watching(_blocked_on_a_step)),
    Invariant("only-completed-is-undone", "000 §4.2 rule 1", _watching(_only_completed_is_undone)),
    Invariant("every-step-is-settled", "000 §6 guideline 6; §1 terminal states", _watching(_every_step_is_settled)),
)
