"""The sink `command`: runs a program of the worker's machine for each event, with the event as JSON on standard input.

An argument list, never a shell, under the command policy of the worker; workers that may not run the program leave the
events to others. Exit status 0 acknowledges the event. Anything else means that it is sent again, with the same id.
"""

from __future__ import annotations

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import SEND_SECONDS, Sink, SinkContext, SinkKind

MOST_ARGUMENTS = 100
LONGEST = 4096


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`argv` is the program and its arguments. With `workflow`, events of other workflows are passed over."""

    argv: tuple[str, ...]
    cwd: str | None = None
    workflow: str | None = None


class CommandSink:
    """Runs one program."""

    def __init__(self, options: CommandOptions, context: SinkContext) -> None:
        self._options, self._run = options, context.run

    async def send(self, event: OutgoingEvent) -> None:
        if self._options.workflow not in (None, event.workflow):
            return
        about = {
            "STEPKEEP_EVENT": event.type,
            "STEPKEEP_EVENT_ID": event.id,
        }
        if event.worker is None:
            about |= {"STEPKEEP_RUN_ID": event.run_id, "STEPKEEP_WORKFLOW": event.workflow}
        else:
            about["STEPKEEP_WORKER"] = event.worker
        await self._run(self._options.argv, self._options.cwd, event.body(), about)

    async def close(self) -> None:
        """It holds nothing between two events."""


def _check(options: CommandOptions) -> None:
    argv = options.argv
    if not 1 <= len(argv) <= MOST_ARGUMENTS or not argv[0].strip():
        raise InvalidInput(f"argv of a command sink has a program and up to {MOST_ARGUMENTS - 1} arguments.")
    if any(len(one) > LONGEST or "\0" in one for one in (*argv, options.cwd or "")):
        raise InvalidInput(f"a text of a command sink has at most {LONGEST} characters and no NUL.")
    if options.cwd is not None and not options.cwd.startswith("/"):
        raise InvalidInput("cwd of a command sink is an absolute path.")


async def _open(options: CommandOptions, context: SinkContext) -> Sink:
    return CommandSink(options, context)


KIND = SinkKind(
    name="command",
    summary=f"a program of the worker's machine, for at most {SEND_SECONDS:g} s",
    options=CommandOptions,
    open=_open,
    check=_check,
)
