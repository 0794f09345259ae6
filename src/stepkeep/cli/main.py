"""The program `stepkeep`: its commands, and the only place where errors become text and an exit status.

Importing it must stay cheap (`--help` answers at once), so commands import what they need when they are called.
"""

from __future__ import annotations

import copy
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Annotated

import typer
import typer.main
from typer.models import CommandInfo

from stepkeep.cli import commands
from stepkeep.cli.command import GROUPS, program
from stepkeep.cli.commands.tools import VARIABLE, answer_shells
from stepkeep.cli.failures import Failure, failure_of
from stepkeep.cli.printer import FAILED, READER_GONE, OutputFailed, answer, flush, say, warn
from stepkeep.cli.streams import discard_output, prepare_help, prepare_streams, traceback_lines
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
PLACES = (
    (WORK, "run check simulate start publish withdraw restore rerun retry fork migrate demo"),
    (LOOK, "runs show status wait explain certify evidence definitions diff dialects workers audit"),
    (PEOPLE, "approvals approve reject request-changes escalate reassign annotate freeze decide complete token send"),
    (PEOPLE, "emit cancel pause resume"),
    (LOOK, "statistics rollback-preview"),
    (PEOPLE, "delegate"),
    (SYSTEM, "worker serve dev mcp call archive prune quarantine completion"),
    (SYSTEM, "users keys tenants hooks network slots resources limits jobs schemas policies mailbox sinks outbox"),
    (LOOK, "streams tail"),
    (SYSTEM, "triggers log state db profile"),
)
"""The commands and groups of commands, as the help shows them."""


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


for _module in iter_modules(commands.__path__):
    import_module(f"{commands.__name__}.{_module.name}")
for _panel, _words in PLACES:
    for _word in _words.split():
        if _word in GROUPS:
            app.add_typer(GROUPS[_word].app, name=_word, rich_help_panel=_panel)
        else:
            app.command(_word, rich_help_panel=_panel)(program.made[_word])

# Other distributions add commands here; the laboratory does.
for _extension in entry_points(group="stepkeep.commands"):
    _extension.load()(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    if VARIABLE in os.environ:
        answer_shells()
    if not given or {"-h", "--help"} & set(given):
        prepare_help()
    try:
        words = given if VARIABLE not in os.environ else _completed()
        tree = _command_tree(*_named([one for one in words if not one.startswith("-")]))
        ended = tree(given, prog_name="stepkeep", standalone_mode=False, obj=arguments is None)
        flush()
    except (SystemExit, KeyboardInterrupt):
        raise
    except (OutputFailed, BrokenPipeError) as problem:
        return _unheard(problem)
    except BaseException as error:  # noqa: BLE001 - no caller has a better message
        return _unheard(unwritten) if (unwritten := _unwritten(error)) is not None else _fail(error, given)
    return ended if isinstance(ended, int) else 0


def _named(words: Sequence[str]) -> tuple[str, str]:
    """The command that a line names, as far as there is one: a word, and in a group a second one."""
    word, inner = (*words[:2], "", "")[:2]
    for group in app.registered_groups:
        if group.name == word and (found := group.typer_instance) is not None:
            return word, inner if any(one.name == inner for one in found.registered_commands) else ""
    return (word if any(one.name == word for one in app.registered_commands) else ""), ""


@functools.cache
def _command_tree(word: str, inner: str) -> Callable[..., object]:
    """The commands, made once per process: in full only the named one. Of the others, only what the list shows: making
    them takes longer than most commands, and loads the engine, whose rows have their bounds."""
    tree = copy.copy(app)
    tree.registered_commands = [one if one.name == word else _listed(one) for one in app.registered_commands]
    tree.registered_groups = [copy.copy(one) for one in app.registered_groups]
    for group in tree.registered_groups:
        if (known := group.typer_instance) is not None:
            group.typer_instance = copy.copy(known)
            group.typer_instance.registered_commands = [
                one if (group.name, one.name) == (word, inner) else _listed(one) for one in known.registered_commands
            ]
            group.typer_instance.registered_groups = known.registered_groups if group.name == word else []
    return typer.main.get_command(tree)


def _listed(command: CommandInfo) -> CommandInfo:
    """A command that is only shown in a list."""
    shown = copy.copy(command)
    shown.help = command.help or inspect.getdoc(command.callback)
    shown.callback = lambda: None
    return shown


def _completed() -> list[str]:
    """The words of the line that a shell asks to complete."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


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
    _print_failure(failure, error)
    if failure.code in ("unexpected", "broken") and not wants_trace:
        warn("This should not have happened. Run it again with --traceback (or STEPKEEP_TRACEBACK=1) to see where.")
    if "--json" in given:
        try:
            answer(failure.as_json())
        except OutputFailed as problem:
            _unheard(problem)
    return failure.status


def _print_failure(failure: Failure, error: BaseException) -> None:
    if not isinstance(error, DefinitionError) or not error.problems:
        warn(f"error: {failure.message}")
        return
    for problem in error.problems:
        warn(str(problem))
    warn("1 problem" if len(error.problems) == 1 else f"{len(error.problems)} problems")


if __name__ == "__main__":
    sys.exit(main())
