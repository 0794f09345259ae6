"""`stepkeep complete` and `token`: complete a manual step by its token or by a signal; replace a token."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

from stepkeep.cli.arguments import By, RunId, arg, opt
from stepkeep.cli.asking import tell
from stepkeep.cli.commands.decide import Evidence, For, and_run, decided
from stepkeep.cli.session import json_value, read_file
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

TOKEN_VARIABLE = "STEPKEEP_TOKEN"  # noqa: S105 - the name of a variable
MAX_TOKEN_BYTES = 4096
MAX_SIGNAL_BYTES = 1_000_000


def complete(
    settings: Settings,
    run: Annotated[str | None, arg("RUN", "The run's id, or enough of its beginning or end.")] = None,
    step: Annotated[str | None, arg("STEP", "The step to complete.")] = None,
    token: Annotated[
        str | None,
        opt(
            "--token",
            "TOKEN",
            "The token that its handler was given; also STEPKEEP_TOKEN, which the process list does not show.",
            envvar=TOKEN_VARIABLE,
        ),
    ] = None,
    token_file: Annotated[
        str | None, opt("--token-file", "FILE", "A file that holds the token; - reads a pipe.")
    ] = None,
    outcome: Annotated[str, opt("--outcome", "OUTCOME", "Succeeded, Failed or Cancelled.")] = "Succeeded",
    output: Annotated[str | None, opt("--output", "JSON|@FILE", "What the step comes to.")] = None,
    notes: Annotated[str, opt("--notes", "TEXT", "Kept with the completion.")] = "",
    evidence: Evidence = None,
    signal: Annotated[
        str | None,
        opt(
            "--signal",
            "JSON|@FILE",
            "A manual completion signal of the action dialect, instead of RUN and STEP; a FILE without @, too.",
        ),
    ] = None,
    for_: For = None,
    by: By = None,
) -> int:
    """Complete a manual step by hand."""
    if signal is not None:
        # The environment may hold the token of another step; the signal brings its own.
        named = run, step, token_file, None if token == os.environ.get(TOKEN_VARIABLE) else token
        if named != (None,) * len(named):
            raise InvalidInput("A --signal names run, action and token: leave out RUN, STEP, --token and --token-file.")
        return _signalled(settings, signal, output, for_, by)
    if run is None or step is None:
        raise InvalidInput("Name the run and the step to complete, or give a --signal.")
    value = json_value(output, "--output")
    presented = _token(token, token_file)
    return decided(
        settings,
        run,
        lambda engine, found: engine.complete(
            found,
            step,
            token=presented,
            outcome=outcome,
            output=value,
            notes=notes,
            evidence=evidence or (),
            for_=for_,
            by=by,
        ),
    )


def token(
    settings: Settings,
    run: RunId,
    step: Annotated[str, arg("STEP", "The manual step whose token is lost.")],
    reason: Annotated[str, opt("--reason", "TEXT", "Why; kept with the new token.")],
    by: By = None,
) -> int:
    """Give a manual step a new token in place of a lost one.

    The old token is useless from then on. The new one is printed once and kept nowhere.
    """

    def words(said: dict[str, Any]) -> tuple[str, str]:
        record, run_id = said["decision"], said["run"]["id"]
        done = settings.command("complete", run_id, record.step, "--token", record.token, "--outcome", "Succeeded")
        return f"{record.step} of run {run_id} has a new token, by {record.by}:", f"  {done}"

    reissue = and_run(run, lambda engine, found: engine.reissue_token(found, step, reason=reason, by=by))
    return tell(settings, reissue, words)


def _signalled(settings: Settings, signal: str, output: str | None, for_: str | None, by: str | None) -> int:
    """Complete the action that a signal names. What it says about its actor and its time is kept as a claim."""
    from stepkeep.dialects.action.signal import read_signal

    value = json_value(output, "--output")
    is_text = signal.lstrip().startswith("{")
    raw = signal if is_text else read_file(signal.removeprefix("@"), "--signal", MAX_SIGNAL_BYTES)
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"--signal: {'it' if is_text else signal} is not JSON: {problem}") from None
    said = read_signal(payload)
    return decided(
        settings,
        said.run_id,
        lambda engine, found: engine.complete(
            found,
            said.step,
            token=said.token,
            outcome=said.outcome,
            output=value,
            notes=said.notes,
            evidence=said.evidence,
            claim=json.loads(said.claim),
            for_=for_,
            by=by,
        ),
    )


def _token(token: str | None, file: str | None) -> str:
    if file is not None:
        return read_file(file, "--token-file", MAX_TOKEN_BYTES).decode(errors="replace").strip()
    if token is None:
        raise InvalidInput("Give the token that the step's handler was given: STEPKEEP_TOKEN, --token-file or --token.")
    return token
