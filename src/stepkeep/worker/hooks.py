"""What sinks of the kinds `command` and `message` need of a worker: programs under its policy, and messages by key.

A program runs on the worker's own loop, in a process of its own, and ends with its time. The worker makes one and hands
its methods to sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepkeep.kernel.definition import Command
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.messages.by_key import KeySender
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.interface import SinkFailed
from stepkeep.worker.executors.command import CommandExecutor, CommandPolicy


class Hooks:
    """Programs and messages for the sinks of one worker."""

    def __init__(self, transactor: Transactor, tenant: str, policy: CommandPolicy) -> None:
        self._commands, self.enabled = CommandExecutor(policy), policy.enabled
        self._sender, self._tenant = KeySender(transactor, Starter(transactor)), tenant

    def may_run(self, program: str) -> bool:
        return self.enabled and self._commands.may_run(program)

    async def run(self, argv: Sequence[str], cwd: str | None, given: bytes, about: Mapping[str, str]) -> None:
        """Run a program for an event. Raises SinkFailed unless it ends with status 0."""
        result = await self._commands.run_alone(Command(argv=tuple(argv), cwd=cwd), given, about)
        if isinstance(result, Failed):
            raise SinkFailed(f"{argv[0]}: {result.error}")

    def messages_of(self, sink: str) -> Messages:
        return Messages(self._sender, Caller(self._tenant, f"sink:{sink}"))


class Messages:
    """Sends messages in the name of one sink."""

    def __init__(self, sender: KeySender, caller: Caller) -> None:
        self._sender, self._caller = sender, caller

    async def send(self, key: str, name: str, message_id: str, payload: bytes) -> None:
        await self._sender.send(key, name, payload, caller=self._caller, message_id=message_id)
