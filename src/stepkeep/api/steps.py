"""Steps and attempts of a run, and what people do to a step: decide about a held one, complete a manual one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import RUN_ID, Anything, As, By
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import RunId
from stepkeep.dialects.action.signal import SignalBlock, read_signal
from stepkeep.kernel.errors import InvalidInput

routes = router("Steps")

StepName = Annotated[str, Path(description="The name of a step.", examples=["greet"])]

UNDER = {"run": "steps", "ioa": "steps", "linear": "workflow_step", "action": "actions", "workstream": "tasks"}
"""Where a dialect's view of a run has its steps."""


class Steps(BaseModel):
    """The steps of a run, with their attempts (`history`). With `as`, the shape of the dialect."""

    run_id: str
    steps: Any


class StepView(BaseModel):
    """A step with the evidence of its attempts: inputs, traceback, log lines."""

    run: Anything
    step: Anything


class Attempts(BaseModel):
    """The attempts of a step, oldest first, each with its evidence."""

    run_id: str
    step: str
    attempts: list[Anything]


class Decision(BaseModel):
    """What was decided. `repeated` says that it had been decided so before."""

    model_config = ConfigDict(extra="allow")

    repeated: bool | None = None


class HoldDecision(By):
    """A decision about a step that holds because no attempt is left, or that is stuck otherwise."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"choice": "retry", "reason": "the cable was loose"}]})

    choice: Literal["retry", "skip", "fail", "complete"]
    reason: str = Field(default="", max_length=4000)
    output: Any = Field(default=None, description="What a completed step comes to.")


class Completion(By):
    """The completion of a manual step. The body may also be the signal of the dialect `action`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": "TOKEN", "outcome": "Succeeded"}]})

    token: str = Field(max_length=4000, description="The completion token that the step's handler was given.")
    outcome: Literal["Succeeded", "Failed", "Cancelled"] = "Succeeded"
    output: Any = None
    notes: str = Field(default="", max_length=4000)
    evidence: list[str] = Field(default=[], max_length=100)
    for_: str | None = Field(default=None, alias="for", max_length=255, description="Who delegated it.")


class Reissue(By):
    """Why a completion token is replaced."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the mail was lost"}]})

    reason: str = Field(min_length=1, max_length=4000)


class NewToken(Decision):
    """The new completion token. It is shown once."""

    token: str


@routes.get(
    "/runs/{run_id}/steps",
    operation_id="list_steps",
    summary="List the steps of a run",
    response_model=None,
    responses=answers(Steps, says="The steps"),
)
async def list_steps(engine: Engine, run_id: RunId, as_: As = None) -> Answer:
    """In the order of the plan. With `as`, in the dialect's words."""
    view = await engine.show(run_id, as_=as_)
    if as_ is None:
        return Answer({"run_id": run_id, "steps": view["steps"]})
    found = view[UNDER[as_]]
    return Answer(found if isinstance(found, dict) else {"run_id": run_id, "steps": found})


@routes.get(
    "/runs/{run_id}/steps/{step:path}/attempts",
    operation_id="list_attempts",
    summary="List the attempts of a step",
    response_model=None,
    responses=answers(Attempts),
)
async def list_attempts(engine: Engine, run_id: RunId, step: StepName) -> Answer:
    """With what each attempt was given, its traceback and its log lines, as far as they are kept."""
    view = await engine.show(run_id, step=step)
    return Answer({"run_id": run_id, "step": step, "attempts": view["step"]["history"]})


@routes.get(
    "/runs/{run_id}/steps/{step:path}",
    operation_id="get_step",
    summary="Show a step",
    response_model=None,
    responses=answers(StepView),
)
async def get_step(engine: Engine, run_id: RunId, step: StepName) -> Answer:
    return Answer(await engine.show(run_id, step=step))


@routes.post(
    "/runs/{run_id}/steps/{step:path}/decide",
    operation_id="decide_step",
    summary="Decide about a stuck step",
    response_model=None,
    responses=answers(Decision),
)
async def decide_step(engine: Engine, run_id: RunId, step: StepName, body: HoldDecision) -> Answer:
    """`retry`, `skip`, `fail` or `complete` a step that holds because no attempt is left, or that is stuck otherwise:
    it waits for its next attempt, for a worker or for a message. Then the reason is required."""
    given = {"reason": body.reason, "output": body.output, "by": body.by}
    return Answer(await engine.decide(run_id, step, body.choice, **given))


@routes.post(
    "/runs/{run_id}/steps/{step:path}/complete",
    operation_id="complete_step",
    summary="Complete a manual step",
    response_model=None,
    responses=answers(Decision),
)
async def complete_step(engine: Engine, run_id: RunId, step: StepName, body: Completion | SignalBlock) -> Answer:
    """With the token that was issued for the step. The same token and outcome again is answered as before.

    The signal of the dialect `action` names the run, the action and the token itself. What it says about its actor and
    its time is kept as a claim; the actor is the owner of the key.
    """
    if isinstance(body, SignalBlock):
        said = read_signal(body.model_dump(mode="json", by_alias=True))
        if (said.run_id, said.step) != (run_id, step):
            raise InvalidInput("the signal names another run or action than the address.")
        told: dict[str, Any] = {
            "token": said.token,
            "outcome": said.outcome,
            "notes": said.notes,
            "evidence": said.evidence,
        }
        return Answer(await engine.complete(run_id, step, claim=msgspec.json.decode(said.claim), **told))
    given = body.model_dump()
    return Answer(await engine.complete(run_id, step, **given))


@routes.post(
    "/runs/{run_id}/steps/{step:path}/token",
    operation_id="reissue_token",
    summary="Replace a lost completion token",
    response_model=None,
    responses=answers(NewToken),
)
async def reissue_token(engine: Engine, run_id: RunId, step: StepName, body: Reissue) -> Answer:
    """The old token is useless from then on. The new one is shown once and kept nowhere."""
    return Answer(await engine.reissue_token(run_id, step, reason=body.reason, by=body.by))


EXAMPLE_SIGNAL = {
    "schemaVersion": 1,
    "runId": RUN_ID,
    "actionId": "inspect",
    "completionToken": "TOKEN",
    "outcome": "Succeeded",
    "actorUserId": "ann",
    "completedAtIso": "2026-01-31T09:30:00Z",
}
"""A signal of seed 003."""
