"""The program `stepkeep`: its commands, and the only place where errors become text and an exit status.

Importing it must stay cheap (`--help` answers at once), so commands import what they need when they are called.
"""

from __future__ import annotations

import copy
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer
import typer.main

from stepkeep.cli import light_help
from stepkeep.cli.commands import (
    approvals,
    archive,
    audit,
    call,
    certify,
    check,
    complete,
    completion,
    continuing,
    db,
    decide,
    definitions,
    demo,
    dev,
    dialects,
    diff,
    evidence,
    explain,
    hooks,
    interventions,
    jobs,
    keys,
    log,
    mailbox,
    mcp,
    migrate,
    network,
    outbox,
    pause,
    policy,
    profile,
    prune,
    quarantine,
    rerun,
    resources,
    rollback,
    run,
    runs,
    schemas,
    send,
    serve,
    show,
    simulate,
    sinks,
    slots,
    start,
    state,
    status,
    tenants,
    triggers,
    users,
    wait,
    worker,
    workers,
)
from stepkeep.cli.failures import Failure, failure_of
from stepkeep.cli.inert_log import traceback_lines
from stepkeep.cli.policies import with_policies
from stepkeep.cli.printer import OutputFailed, answer, flush, say, warn
from stepkeep.cli.settings import Needs, with_settings
from stepkeep.cli.status import FAILED, READER_GONE
from stepkeep.cli.streams import discard_output, prepare_streams
from stepkeep.kernel.errors import DefinitionError

app = typer.Typer(
    name="stepkeep",
    help="Stepkeep, a durable workflow engine: plans of steps that are kept, retried, approved and undone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
WORK, LOOK, PEOPLE, SYSTEM = "Run workflows", "Look", "Decide", "Operate"


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"stepkeep {version('stepkeep')}")
        raise typer.Exit


@app.callback()
def stepkeep(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Stepkeep, a durable workflow engine: plans of steps that are kept, retried, approved and undone."""


app.command("run", rich_help_panel=WORK)(with_settings(with_policies(run.run)))
app.command("check", rich_help_panel=WORK)(with_settings(check.check, Needs.NOTHING))
app.command("simulate", rich_help_panel=WORK)(with_settings(simulate.simulate, Needs.NOTHING))
app.command("start", rich_help_panel=WORK)(with_settings(start.start))
app.command("publish", rich_help_panel=WORK)(with_settings(definitions.publish))
app.command("withdraw", rich_help_panel=WORK)(with_settings(definitions.withdraw))
app.command("restore", rich_help_panel=WORK)(with_settings(definitions.restore))
app.command("rerun", rich_help_panel=WORK)(with_settings(with_policies(rerun.rerun)))
app.command("retry", rich_help_panel=WORK)(with_settings(with_policies(continuing.retry)))
app.command("fork", rich_help_panel=WORK)(with_settings(with_policies(continuing.fork)))
app.command("migrate", rich_help_panel=WORK)(with_settings(migrate.migrate))
app.command("demo", rich_help_panel=WORK)(with_settings(demo.demo, Needs.NOTHING))
app.command("runs", rich_help_panel=LOOK)(with_settings(runs.runs))
app.command("show", rich_help_panel=LOOK)(with_settings(show.show))
app.command("status", rich_help_panel=LOOK)(with_settings(status.status))
app.command("wait", rich_help_panel=LOOK)(with_settings(wait.wait))
app.command("explain", rich_help_panel=LOOK)(with_settings(explain.explain))
app.command("certify", rich_help_panel=LOOK)(with_settings(certify.certify))
app.command("evidence", rich_help_panel=LOOK)(with_settings(evidence.evidence))
app.command("definitions", rich_help_panel=LOOK)(with_settings(definitions.definitions))
app.command("diff", rich_help_panel=LOOK)(with_settings(diff.diff))
app.command("dialects", rich_help_panel=LOOK)(with_settings(dialects.dialects, Needs.NOTHING))
app.command("workers", rich_help_panel=LOOK)(with_settings(workers.workers))
app.command("audit", rich_help_panel=LOOK)(with_settings(audit.audit))
app.command("approvals", rich_help_panel=PEOPLE)(with_settings(approvals.approvals))
app.command("approve", rich_help_panel=PEOPLE)(with_settings(decide.approve))
app.command("reject", rich_help_panel=PEOPLE)(with_settings(decide.reject))
app.command("request-changes", rich_help_panel=PEOPLE)(with_settings(interventions.request_changes))
app.command("escalate", rich_help_panel=PEOPLE)(with_settings(interventions.escalate))
app.command("reassign", rich_help_panel=PEOPLE)(with_settings(interventions.reassign))
app.command("annotate", rich_help_panel=PEOPLE)(with_settings(interventions.annotate))
app.command("freeze", rich_help_panel=PEOPLE)(with_settings(interventions.freeze))
app.command("decide", rich_help_panel=PEOPLE)(with_settings(decide.decide))
app.command("complete", rich_help_panel=PEOPLE)(with_settings(complete.complete))
app.command("token", rich_help_panel=PEOPLE)(with_settings(complete.token))
app.command("send", rich_help_panel=PEOPLE)(with_settings(send.send))
app.command("emit", rich_help_panel=PEOPLE)(with_settings(triggers.emit))
app.command("cancel", rich_help_panel=PEOPLE)(with_settings(decide.cancel))
app.command("pause", rich_help_panel=PEOPLE)(with_settings(pause.pause))
app.command("resume", rich_help_panel=PEOPLE)(with_settings(pause.resume))
app.command("rollback-preview", rich_help_panel=LOOK)(with_settings(rollback.rollback_preview))
app.command("delegate", rich_help_panel=PEOPLE)(with_settings(users.delegate))
app.command("worker", rich_help_panel=SYSTEM)(with_settings(with_policies(worker.worker)))
app.command("serve", rich_help_panel=SYSTEM)(with_settings(serve.serve, Needs.DATABASE))
app.command("dev", rich_help_panel=SYSTEM)(with_settings(with_policies(dev.dev), Needs.DATABASE))
app.command("mcp", rich_help_panel=SYSTEM)(with_settings(mcp.mcp))
app.command("call", rich_help_panel=SYSTEM)(with_settings(call.call))
app.command("archive", rich_help_panel=SYSTEM)(with_settings(archive.archive, Needs.DATABASE))
app.command("prune", rich_help_panel=SYSTEM)(with_settings(prune.prune, Needs.DATABASE))
app.command("quarantine", rich_help_panel=SYSTEM)(with_settings(quarantine.quarantine))
app.command("completion", rich_help_panel=SYSTEM)(with_settings(completion.completion, Needs.NOTHING))
app.add_typer(users.app, name="users", rich_help_panel=SYSTEM)
app.add_typer(keys.app, name="keys", rich_help_panel=SYSTEM)
app.add_typer(tenants.app, name="tenants", rich_help_panel=SYSTEM)
app.add_typer(hooks.app, name="hooks", rich_help_panel=SYSTEM)
app.add_typer(network.app, name="network", rich_help_panel=SYSTEM)
app.add_typer(slots.app, name="slots", rich_help_panel=SYSTEM)
app.add_typer(resources.app, name="resources", rich_help_panel=SYSTEM)
app.add_typer(jobs.app, name="jobs", rich_help_panel=SYSTEM)
app.add_typer(schemas.app, name="schemas", rich_help_panel=SYSTEM)
app.add_typer(policy.app, name="policy", rich_help_panel=SYSTEM)
app.add_typer(mailbox.app, name="mailbox", rich_help_panel=SYSTEM)
app.add_typer(sinks.app, name="sinks", rich_help_panel=SYSTEM)
app.add_typer(outbox.app, name="outbox", rich_help_panel=SYSTEM)
app.add_typer(triggers.app, name="triggers", rich_help_panel=SYSTEM)
app.add_typer(log.app, name="log", rich_help_panel=SYSTEM)
app.add_typer(state.app, name="state", rich_help_panel=SYSTEM)
app.add_typer(db.app, name="db", rich_help_panel=SYSTEM)
app.add_typer(profile.app, name="profile", rich_help_panel=SYSTEM)

# Other distributions add commands here; the laboratory does.
for _extension in entry_points(group="stepkeep.commands"):
    _extension.load()(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    if completion.VARIABLE in os.environ:
        completion.prepare()
    if not given or {"-h", "--help"} & set(given):
        light_help.prepare()
    try:
        named = given[0] if given and completion.VARIABLE not in os.environ else ""
        ended = _command_tree(named)(given, prog_name="stepkeep", standalone_mode=False, obj=arguments is None)
        flush()
    except (SystemExit, KeyboardInterrupt):
        raise
    except (OutputFailed, BrokenPipeError) as problem:
        return _unheard(problem)
    except BaseException as error:  # noqa: BLE001 - no caller has a better message
        return _unheard(unwritten) if (unwritten := _unwritten(error)) is not None else _fail(error, given)
    return ended if isinstance(ended, int) else 0


@functools.cache
def _command_tree(named: str) -> Callable[..., object]:
    """The commands, made once per process: only the named one where there is one, because making all takes longer than
    most commands."""
    commands = [one for one in app.registered_commands if one.name == named]
    groups = [one for one in app.registered_groups if one.name == named]
    if not commands and not groups:
        return typer.main.get_command(app)
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    return typer.main.get_command(only)


def _unwritten(error: BaseException) -> OutputFailed | None:
    """Whether an OSError came from standard output, to which libraries such as the help write."""
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        try:
            say("")  # the stream forgets what it could not write, so try again
            flush()
        except OutputFailed as problem:
            return problem
    return None


def _unheard(problem: OutputFailed | BrokenPipeError) -> int:
    """Standard output is closed or full. The command's work is done; only its output is lost."""
    discard_output()
    if isinstance(problem, BrokenPipeError) or problem.is_closed:
        return READER_GONE
    warn(f"error: standard output cannot be written: {problem}.")
    return FAILED


def _fail(error: BaseException, given: Sequence[str]) -> int:
    if isinstance(error, typer.Abort):
        warn("aborted")
        return 1
    failure = failure_of(error)
    wants_trace = "--traceback" in given or os.environ.get("STEPKEEP_TRACEBACK", "") not in ("", "0")
    if failure.code in ("unexpected", "broken") and wants_trace:
        for line in traceback_lines(error):
            warn(line)
    _tell(failure, error)
    if failure.code in ("unexpected", "broken") and not wants_trace:
        warn("This should not have happened. Run it again with --traceback (or STEPKEEP_TRACEBACK=1) to see where.")
    if "--json" in given:
        try:
            answer(failure.as_json())
        except OutputFailed as problem:
            _unheard(problem)
    return failure.status


def _tell(failure: Failure, error: BaseException) -> None:
    if not isinstance(error, DefinitionError) or not error.problems:
        warn(f"error: {failure.message}")
        return
    for problem in error.problems:
        warn(str(problem))
    warn("1 problem" if len(error.problems) == 1 else f"{len(error.problems)} problems")


if __name__ == "__main__":
    sys.exit(main())
