"""`stepkeep approvals`, and what people decide about a run: `approve`, `decide`, `cancel`, `complete` and others."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from stepkeep.cli.answering import of_run, print_answer
from stepkeep.cli.arguments import CURSOR, By, Text, arg, opt
from stepkeep.cli.command import CommandValues, program
from stepkeep.cli.render.look import words
from stepkeep.cli.session import json_value, read_file
from stepkeep.cli.settings import Settings
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer
    from stepkeep.operations.people.approvals import ApprovalList, OpenGate

DEFAULT_LIMIT = 20
MOST_SHOWN = 300
"""Characters of a prompt or a fact on a line."""
TOKEN_VARIABLE = "STEPKEEP_TOKEN"  # noqa: S105 - the name of a variable
MAX_TOKEN_BYTES = 4096
MAX_SIGNAL_BYTES = 1_000_000

GATE = arg("STEP", "The gate; may be left out when exactly one is open.")
COMMENT = opt("--comment", "TEXT", "Kept with the decision.")
FOR = opt("--for", "PERSON", "The person who delegated the decision to you.", show_default=False)
EVIDENCE = opt("--evidence", "REFERENCE", "Where the proof is; may be repeated.")
WHY = opt("--reason", "TEXT", "Kept in the journal.", show_default=False)
REASON = opt("--reason", "TEXT", "Kept with the decision.")
OUTPUT = opt("--output", "JSON|@FILE", "What a completed step comes to.", reads=json_value)
Reason = Annotated[str, REASON]


def decided(settings: Settings, run: str, decide: Callable[[AsyncEngine, str], Awaitable[Answer]]) -> int:
    """Make a decision, then print what was recorded and the state of the run."""
    return print_answer(settings, and_run(run, decide), lambda said: recorded(said, None))


def and_run(
    run: str, decide: Callable[[AsyncEngine, str], Awaitable[Answer]]
) -> Callable[[AsyncEngine], Awaitable[Mapping[str, Any]]]:
    """Put a request to the engine; its answer comes together with the run as it then stands."""

    async def work(engine: AsyncEngine, run_id: str) -> Mapping[str, Any]:
        record = await decide(engine, run_id)
        return {"decision": record, **await engine.show(run_id)}

    return of_run(run, work)


def recorded(said: Mapping[str, Any], _: CommandValues | None) -> Iterator[str]:
    record, now = said["decision"], said["run"]
    what = record.get("decision") or record.get("outcome")
    step = f"{record.step} " if record.get("step") else ""
    again = " (as before)" if record.repeated else ""
    lent = f" for {record.for_}" if record.get("for") else ""
    if what:
        yield f"{step}{str(what).lower()} by {record.by}{lent}{again}{counted(record)}; {stands(now)}"
    else:
        yield f"{stands(now)}{again}"
    if record.repeated and record.get("outcome"):
        yield "the completion stands as it was recorded; what was given now was not kept"


def counted(record: Answer) -> str:
    """How an open gate stands after a decision: `: counted, 1 of 2; it needs 1 more of role finance`."""
    if "counted" not in record:
        return ""
    so_far, needs = record["counted"], record["needs"]
    rejected = f" and {so_far.rejected} rejected" if so_far.rejected else ""
    quorum = so_far.approved + needs.approved
    return f": counted, {so_far.approved} of {quorum}{rejected}; it needs {needs.approved} more of {needs.of}"


def stands(run: Mapping[str, Any]) -> str:
    """How a run stands now: `run ID is blocked`, `run ID has succeeded`."""
    verb = "has" if run["state"] in {"succeeded", "failed"} else "is"
    return f"run {run['id']} {verb} {words(run['state'])}"


VOTE: dict[str, Any] = {"recorded": True, "step": GATE, "comment": COMMENT, "evidence": EVIDENCE, "for_": FOR}
program.operation("approve", "approve", "Approve an open gate.", **VOTE)(recorded)
program.operation("reject", "reject", "Reject an open gate.", **VOTE)(recorded)
program.operation(
    "decide",
    "decide",
    """Retry, skip, fail or complete a stuck step.

    It holds because no attempt is left, or it waits for its next attempt, for a worker or for a message.
    """,
    recorded=True,
    step=arg("STEP", "The step that is stuck."),
    choice=arg("DECISION", "retry, skip, fail or complete."),
    output=OUTPUT,
    reason=opt("--reason", "TEXT", "Kept with the decision; required unless the step holds."),
)(recorded)
program.operation(
    "cancel",
    "cancel",
    "Cancel a run.",
    recorded=True,
    compensate=opt("--compensate", "Undo what the run did."),
    reason=REASON,
)(recorded)
program.operation(
    "request-changes",
    "interventions.request_changes",
    "Request changes at an open gate. It stays open, and the decisions so far are void.",
    recorded=True,
    comment=opt("--comment", "TEXT", "What is to change.", show_default=False),
    step=GATE,
    for_=FOR,
)(recorded)
program.operation(
    "escalate",
    "interventions.escalate",
    "Open the next level of a gate before its deadline does.",
    recorded=True,
    reason=WHY,
    step=GATE,
    for_=FOR,
)(recorded)
program.operation(
    "reassign",
    "interventions.reassign",
    """Name other approvers for a gate that nobody may decide, or fail it.

    Only a person who did not ask for the run may.
    """,
    recorded=True,
    step=arg("STEP", "The gate."),
    reason=WHY,
    to=opt("--to", "NAME", "Who may decide it; may be repeated."),
    fail=opt("--fail", "Fail the gate instead."),
)(recorded)


@program.operation(
    "annotate",
    "interventions.annotate",
    recorded=True,
    note=arg("NOTE", "The text."),
    step=opt("--step", "STEP", "The step that it is about.", show_default=False),
)
def annotate(told: dict[str, Any], asked: CommandValues) -> Iterator[str]:
    """Keep a note in the journal of a run. No state changes."""
    about = f" about {asked['step']}" if asked["step"] else ""
    yield f"a note{about} by {told['decision'].by} is in the journal; {stands(told['run'])}"
    yield f"Read it: {asked.command('log', 'export', told['run']['id'])}"


@program.operation("freeze", "interventions.freeze", recorded=True, reason=WHY)
def freeze(told: dict[str, Any], asked: CommandValues) -> Iterator[str]:
    """Freeze a run: a pause under a name of its own, with a reason."""
    yield from recorded(told, asked)
    yield f"Go on: {asked.command('resume', asked['run_id'])}"


@program.command("complete")
def complete(
    settings: Settings,
    run: Annotated[Text, arg("RUN", "The run's id, or enough of its beginning or end.")] = None,
    step: Annotated[Text, arg("STEP", "The step to complete.")] = None,
    token: Annotated[
        Text,
        opt(
            "--token",
            "TOKEN",
            "The token that its handler was given; also STEPKEEP_TOKEN, which the process list does not show.",
            envvar=TOKEN_VARIABLE,
        ),
    ] = None,
    token_file: Annotated[Text, opt("--token-file", "FILE", "A file that holds the token; - reads a pipe.")] = None,
    outcome: Annotated[str, opt("--outcome", "OUTCOME", "Succeeded, Failed or Cancelled.")] = "Succeeded",
    output: Annotated[Text, opt("--output", "JSON|@FILE", "What the step comes to.")] = None,
    notes: Annotated[str, opt("--notes", "TEXT", "Kept with the completion.")] = "",
    evidence: Annotated[list[str] | None, EVIDENCE] = None,
    signal: Annotated[
        Text,
        opt(
            "--signal",
            "JSON|@FILE",
            "A manual completion signal of the action dialect, instead of RUN and STEP; a FILE without @, too.",
        ),
    ] = None,
    for_: Annotated[str | None, FOR] = None,
    by: By = None,
) -> int:
    """Complete a manual step by hand."""
    given: dict[str, Any] = {"output": json_value(output, "--output"), "for_": for_, "by": by}
    if signal is not None:
        # The environment may hold the token of another step; the signal brings its own.
        named = run, step, token_file, None if token == os.environ.get(TOKEN_VARIABLE) else token
        if named != (None,) * len(named):
            raise InvalidInput("A --signal names run, action and token: leave out RUN, STEP, --token and --token-file.")
        said = _signalled(signal)
        run, step, token, outcome = said.run_id, said.step, said.token, said.outcome
        given |= {"notes": said.notes, "evidence": said.evidence, "claim": json.loads(said.claim)}
    elif run is None or step is None:
        raise InvalidInput("Name the run and the step to complete, or give a --signal.")
    else:
        token = _token(token, token_file)
        given |= {"notes": notes, "evidence": evidence or ()}
    given |= {"token": token, "outcome": outcome}
    return decided(settings, run, lambda engine, found: engine.complete(found, step, **given))


def _signalled(signal: str) -> Any:
    """The completion that a signal names. What it says about its actor and its time is kept as a claim."""
    from stepkeep.dialects.action.signal import read_signal

    is_text = signal.lstrip().startswith("{")
    raw = signal if is_text else read_file(signal.removeprefix("@"), "--signal", MAX_SIGNAL_BYTES)
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"--signal: {'it' if is_text else signal} is not JSON: {problem}") from None
    return read_signal(payload)


def _token(token: str | None, file: str | None) -> str:
    if file is not None:
        return read_file(file, "--token-file", MAX_TOKEN_BYTES).decode(errors="replace").strip()
    if token is None:
        raise InvalidInput("Give the token that the step's handler was given: STEPKEEP_TOKEN, --token-file or --token.")
    return token


@program.operation(
    "token",
    "reissue_token",
    recorded=True,
    step=arg("STEP", "The manual step whose token is lost."),
    reason=opt("--reason", "TEXT", "Why; kept with the new token."),
)
def token(said: dict[str, Any], asked: CommandValues) -> Iterator[str]:
    """Give a manual step a new token in place of a lost one.

    The old token is useless from then on. The new one is printed once and kept nowhere.
    """
    record, run_id = said["decision"], said["run"]["id"]
    yield f"{record.step} of run {run_id} has a new token, by {record.by}:"
    yield f"  {asked.command('complete', run_id, record.step, '--token', record.token, '--outcome', 'Succeeded')}"


def _with_commands(found: ApprovalList, asked: CommandValues) -> ApprovalList:
    """The same with the command that approves each gate."""
    name = () if asked["by"] is None else ("--by", asked["by"])
    gates = [
        replace(one, command=asked.command("approve", one.run_id, one.step, *name) if one.may_decide else None)
        for one in found.approvals
    ]
    return replace(found, approvals=gates)


@program.operation(
    "approvals",
    "approvals",
    shaped=_with_commands,
    fails=lambda found: found.unreadable,
    mine=opt("--mine", "Only those that you may decide."),
    late=opt("--late", "Only those past their deadline, or escalated to the next people."),
    limit=opt("--limit", "At most this many.", by_default=DEFAULT_LIMIT),
    after=CURSOR,
)
def approvals(found: ApprovalList, asked: CommandValues) -> Iterator[str]:
    """List open gates, oldest run first: what is asked, what is shown, who has decided, and whether you may."""
    if not found.approvals:
        which = " that you may decide" if asked["mine"] else ""
        yield f"no {'late ' if asked['late'] else ''}gate is open{which} in {asked.settings.source}"
    for gate in found.approvals:
        yield from lines(gate)
    for one in found.unreadable or []:
        yield f"run {one.run_id}: {one.message}"
    if found.next is not None:
        filters = [f"--{name}" for name in ("mine", "late") if asked[name]]
        filters += [] if asked["by"] is None else ["--by", asked["by"]]
        filters += [] if asked["limit"] == DEFAULT_LIMIT else ["--limit", str(asked["limit"])]
        yield f"more: {asked.command('approvals', *filters, '--cursor', found.next)}"


def lines(one: OpenGate) -> Iterator[str]:
    """One gate in a few lines. The last one is the command that decides it, or the reason why you may not."""
    level = f", level {one.level}" if one.level else ""
    ends = "" if one.until is None else f", {'was due' if one.late and not level else 'until'} {one.until}"
    yield f"{one.step} of {one.workflow} ({one.run_id}), asked for by {', '.join(one.asked_by)}{level}{ends}"
    if one.prompt:
        yield f"  {inert_line(one.prompt, MOST_SHOWN)}"
    for name, value in one.shown.items():
        yield f"  {inert_line(str(name), MOST_SHOWN)}: {inert_line(_plain(value), MOST_SHOWN)}"
    if one.rule:
        yield f"  held by {one.rule}"
    told = [f"{vote.by} {vote.decision} at {vote.at}" for vote in one.votes]
    if one.changes is not None:
        asked = inert_line(one.changes.comment, MOST_SHOWN)
        yield f"  changes requested by {one.changes.by} at {one.changes.at}: {asked}"
    yield "  " + "; ".join([f"needs {one.needs.approved} more by {one.needs.of}", *told])
    yield f"  {one.command}" if one.refusal is None else f"  you may not: {one.refusal.message}"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()
