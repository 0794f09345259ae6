"""What a caller gets of a run: its state, its output or error, and what it waits for.

A value. It reads nothing but the view of a finished run, by the function that an Engine gives it. `wait`, `run` and
`result` of both engines return it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self

import msgspec
from msgspec.structs import replace

from stepkeep.definition.python.calls import FlowWorkflow
from stepkeep.definition.python.conversion import result_converter
from stepkeep.definition.python.registry import Output
from stepkeep.edges.safe_text import html_table, inert_line
from stepkeep.kernel.errors import InvalidInput, RunNotSucceeded
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations.runs.run_answers import RunView, Waiting

MOST_SHOWN = 300
"""How many characters the repr of a result has at most."""


class Result(msgspec.Struct, Generic[Output], frozen=True, kw_only=True):
    """The state of a run: `state`, its `output` once it has succeeded, its `error`, and everything else in `view`.

    `wait` does not read the view of a finished run, and `run` and `work_on` not that of one that succeeded, unless
    steps of it may have been skipped. On an Engine, `result.view` reads it when it is asked for; on an AsyncEngine,
    `await engine.show(result.run_id)` does.
    """

    run_id: str
    """The id of the run."""
    state: RunState
    """Its state. `finished` says whether it is the last one."""
    output: Output = None  # type: ignore[assignment]
    """Its output, in `run` of a flow of the type that its function returns; None unless it has succeeded."""
    error: str | None = None
    """Why it did not succeed; None otherwise."""
    lacking: tuple[str, ...] = ()
    """Which steps of a run that `run` or `work_on` left unfinished need a capability that they were not given."""
    loaded: RunView | None = None
    """The view, if it was read with the result. Use `view`."""
    load: Callable[[], RunView] | None = None
    """What reads the view. Use `view`."""

    @property
    def view(self) -> RunView:
        """Everything about the run, as `show` returns it."""
        if self.loaded is not None:
            return self.loaded
        if self.load is None:
            raise InvalidInput(
                f"the view of run {self.run_id} was not read. Read it with `await engine.show({self.run_id!r})`."
            )
        return self.load()

    @property
    def id(self) -> str:
        """The same as `run_id`."""
        return self.run_id

    @property
    def finished(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.state in RUN_TERMINAL

    @property
    def waiting_for(self) -> list[Waiting]:
        """What the run waits for: one entry per open gate, awaited message and manual step."""
        return [] if self.finished else self.view.run.waiting_for

    @property
    def warnings(self) -> list[str]:
        """Where a run did less than its state says: steps that were skipped after a failure, or with another step."""
        return self.view.run.warnings

    def raise_for_state(self) -> Self:
        """Raise RunNotSucceeded unless the run has succeeded; returns the result itself.

        >>> Result(run_id="r1", state=RunState.FAILED, output=None, error="no stock").raise_for_state()
        Traceback (most recent call last):
        stepkeep.kernel.errors.RunNotSucceeded: run r1 failed: no stock
        """
        if self.state is not RunState.SUCCEEDED:
            raise RunNotSucceeded(str(self), self)
        return self

    def __repr__(self) -> str:
        return f"<Result: {inert_line(str(self), MOST_SHOWN)}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        shown = {"output": self.output, "error": self.error, "waits for": [*self.lacking, *self._waits()]}
        rows = [(name, str(value)) for name, value in shown.items() if value not in (None, [])]
        return html_table(f"run {self.run_id} {self.state}", rows)

    def _waits(self) -> list[str]:
        return list(map(_wait_text, self.waiting_for)) if self.loaded and not self.finished else []

    def __str__(self) -> str:
        said = f"run {self.run_id} {self.state}"
        if self.error:
            return f"{said}: {self.error}"
        if not self.finished and self.loaded:
            waits = "; ".join((*self.lacking, *self._waits()))
            return f"{said}: {waits}" if waits else said
        said += "" if self.output is None else f": {msgspec.json.encode(self.output, enc_hook=str).decode()}"
        return said + "".join(f"; warning: {warning}" for warning in (self.warnings if self.loaded else ()))


def typed(result: Result[Output], workflow: object) -> Result[Output]:
    """The same result with the output of the type that this flow returns. Raises InvalidInput if it does not fit."""
    if not isinstance(workflow, FlowWorkflow) or result.state is not RunState.SUCCEEDED:
        return result
    convert = result_converter(workflow.function, f"run {result.run_id} succeeded, but its output")
    return result if convert is None else replace(result, output=convert(result.output))


def settled_states(*, until_blocked: bool) -> frozenset[RunState]:
    """The states that a caller waits for."""
    return RUN_TERMINAL | ({RunState.BLOCKED, RunState.PAUSED, RunState.IDLE} if until_blocked else set())


def _wait_text(wait: Waiting) -> str:
    """One wait in words, for people: `sign-off waits for approval by finance`."""
    whose = f" by {wait.of}" if wait.of else ""
    until = f" until {wait.until}" if wait.until else ""
    what = {
        "approval": f"approval{whose}",
        "event": f"the message {wait.event or None}",
        "completion": "completion by hand",
        "decision": "a decision: retry, skip or fail",
        "sleep": "a moment",
        "children": "its child runs",
    }.get(wait.for_, wait.for_)
    return f"{wait.step} waits for {what}{until}"
