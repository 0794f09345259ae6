"""Runs programs: an argument list, never a shell, in a process group of its own that ends with its attempt.

The program receives the inputs as JSON on standard input, a short list of environment variables, and none of the
worker's secrets. The end of its output is kept, up to a limit. Errors name the program, but not its arguments,
environment or directory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

import msgspec

from stepkeep.edges.own_process import is_private
from stepkeep.edges.redaction import secrets_of, secrets_of_arguments, without
from stepkeep.kernel.definition import Command
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.plan import PlannedStep
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES
from stepkeep.worker.attempts.executor import Job, PoolKind
from stepkeep.worker.attempts.payloads import encode, storable_text
from stepkeep.worker.identity import Identity, identity_of, passed_on

CAPTURE = 32 * 1024
TERM_SECONDS = 2.0
PIPE_SECONDS = 1.0
"""How long pipes are read after the program has ended: processes that left its group may keep them open forever."""
LEAST_MEMORY = 1024 * 1024

# Another attempt may succeed: memory, descriptors or process table entries were short.
_SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
# Variables through which the loader runs other code than the program's.
_LOADER = ("LD_", "DYLD_")

_decode = msgspec.json.Decoder().decode


class CommandPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker lets commands do: steps, rules, hooks, sinks and git alike. By default any program runs, as the
    worker's own user, on an embedded database and in runs that the program itself executes.

    `tenants` names the tenants whose commands run here; workers on PostgreSQL or over HTTP run none without it.
    `programs` lists those that may run, by name or absolute path; `environment` names variables of the worker that are
    passed on besides the usual ones. `private_cwd` gives each attempt an empty directory, removed after it; `user` is
    the name or uid of the user they run as; `memory` (bytes) bounds the address space of each process. `enabled` False
    leaves commands to other workers.
    """

    enabled: bool = True
    tenants: tuple[str, ...] | None = None
    programs: tuple[str, ...] | None = None
    environment: tuple[str, ...] = ()
    private_cwd: bool = False
    user: int | str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for given in (self.tenants, self.programs, self.environment):
            if isinstance(given, str):
                raise InvalidInput(f"several texts are needed, as in ({given!r},), and not a single one.")
        for program in self.programs or ():
            _located(program)
        if self.memory is not None and self.memory < LEAST_MEMORY:
            raise InvalidInput(f"no command runs with {self.memory} bytes of memory; give {LEAST_MEMORY} or more.")
        if hidden := [name for name in self.environment if is_private(name)]:
            said = "Give it to the step that needs it instead: env: {TOKEN: '${{ secret.NAME }}'}."
            raise InvalidInput(f"{hidden[0]} is not passed on to every command, because it is a secret. {said}")
        self.identity  # noqa: B018 - refuses a user that does not exist

    @property
    def identity(self) -> Identity | None:
        """The user that commands run as, if it is another one than the worker's."""
        return None if self.user is None else identity_of(self.user)

    def decided(self, tenant: str, *, by_default: bool) -> CommandPolicy:
        """The same, with `enabled` decided for the commands of this tenant; `by_default` counts without `tenants`."""
        allowed = by_default if self.tenants is None else tenant in self.tenants
        return msgspec.structs.replace(self, enabled=self.enabled and allowed)


class CommandExecutor:
    """Runs `command:` steps."""

    spec = None

    def __init__(self, policy: CommandPolicy) -> None:
        self._policy, self._as = policy, policy.identity
        self._programs = None if policy.programs is None else frozenset(map(_located, policy.programs))

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.LOOP

    async def run(self, job: Job) -> Any:
        command = job.prepared.render_executor(job)
        assert isinstance(command, Command)
        return await self.execute(job, command, job.prepared.render(job))

    async def execute(self, job: Job, command: Command, inputs: Any) -> Any:
        """Run one program for this attempt: its result, or the failure."""
        given = encode(inputs, what="the input of the command", limit=MAX_PAYLOAD_BYTES)
        if refusal := self._refusal(command):
            return refusal
        secrets = (*secrets_of(_secret_environment(job, command)), *secrets_of_arguments(command.argv))
        return await self._in_its_place(command, given, {**command.env, **_about(job)}, secrets)

    def may_run(self, program: str) -> bool:
        """Whether this program is among those that may run here."""
        return self._programs is None or _found(program) in self._programs

    async def run_alone(self, command: Command, given: bytes, about: Mapping[str, str]) -> Any:
        """Run a program that belongs to no attempt: its result, or the failure."""
        if refusal := self._refusal(command):
            return refusal
        return await self._in_its_place(command, given, {**command.env, **about}, ())

    async def _in_its_place(
        self, command: Command, given: bytes, variables: dict[str, str], secrets: tuple[str, ...]
    ) -> Any:
        """Run a program in its directory. Another user has no business in that of the worker."""
        passed = {**passed_on(self._as, self._policy.environment), **variables}
        if command.cwd is not None or not (self._policy.private_cwd or self._as):
            return await self._started_and_watched(command, given, command.cwd, passed, secrets)
        with tempfile.TemporaryDirectory(prefix="stepkeep-") as private:
            if self._as is not None:
                os.chown(private, self._as.uid, self._as.gid)
            return await self._started_and_watched(command, given, private, passed, secrets)

    async def _started_and_watched(
        self, command: Command, given: bytes, cwd: str | None, variables: dict[str, str], secrets: tuple[str, ...]
    ) -> Any:
        loop = asyncio.get_running_loop()
        starting = loop.subprocess_exec(
            lambda: Ends(CAPTURE, loop),
            *command.argv,
            executable=None if self._programs is None else _found(command.argv[0]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=variables,
            start_new_session=True,
            **({} if self._as is None else self._as.options),
        )
        try:
            transport, protocol = await _started(starting)
        except (OSError, ValueError) as problem:
            return _unstarted(command, problem)
        try:
            self._limit(transport.get_pid())
            return await _watch(transport, protocol, given, secrets)
        finally:
            await _end(transport, protocol)

    def _refusal(self, command: Command) -> Failed | None:
        program = command.argv[0]
        if self._as is not None and os.geteuid() != 0:
            said = f"this worker may not run commands as {self._as.name}: only root can"
            return Failed(category=Category.GOVERNANCE, error=storable_text(said), final=True)
        if self._programs is None:
            return None
        if _found(program) not in self._programs:
            said = f"the command {program!r} is not among the programs that this worker runs"
            return Failed(category=Category.GOVERNANCE, error=storable_text(said), final=True)
        loaders = [name for name in command.env if name.startswith(_LOADER)]
        if loaders:
            said = f"the command {program!r} may not set {loaders[0]} where programs are restricted"
            return Failed(category=Category.GOVERNANCE, error=storable_text(said), final=True)
        return None

    def _limit(self, pid: int) -> None:
        # From outside: code between fork and exec may deadlock in a process with threads.
        if self._policy.memory is not None:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_AS, (self._policy.memory, self._policy.memory))


class Ends(asyncio.subprocess.SubprocessStreamProtocol):
    """Reports the end of the program itself; asyncio's own wait also waits for processes that inherited its pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


Process = tuple[asyncio.SubprocessTransport, Ends]


async def _started(starting: Coroutine[Any, Any, Process]) -> Process:
    """Let a start complete even if it is cancelled, and then end what was started.

    Otherwise asyncio would wait forever for pipes that it has not opened yet.
    """
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        if not start.cancelled():
            with suppress(OSError, ValueError):
                await _end(*(await asyncio.shield(start)))
        raise


async def _watch(transport: asyncio.SubprocessTransport, protocol: Ends, given: bytes, secrets: tuple[str, ...]) -> Any:
    stdin, stdout, stderr = protocol.stdin, protocol.stdout, protocol.stderr
    assert stdin
    assert stdout
    assert stderr
    output, errors = Tail(stdout), Tail(stderr)
    talking = asyncio.gather(output.read(), errors.read(), _feed(stdin, given))
    try:
        await protocol.ended.wait()
        # Background processes would keep the pipes open and outlive their step. Processes that left the group are not
        # reached, so the pipes are not awaited.
        _signal(transport, signal.SIGKILL)
        await asyncio.wait([talking], timeout=PIPE_SECONDS)
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    status = transport.get_returncode()
    assert status is not None
    if status == 0:
        return _result(output, errors)
    ended = f"killed:{-status}" if status < 0 else f"exit status {status}"
    tail = without(errors.text().strip() or output.text().strip(), secrets)
    category = Category.UNKNOWN if status < 0 else Category.EXTERNAL
    return Failed(category=category, error=storable_text(f"{ended}: {tail}" if tail else ended))


class CommandResult(TypedDict):
    """The output of a command that ended well. `json` is there if it wrote JSON."""

    exit_code: int
    stdout: str
    stderr: str
    stdout_cut: NotRequired[bool]
    json: NotRequired[Any]


def _result(output: Tail, errors: Tail) -> CommandResult:
    result: CommandResult = {"exit_code": 0, "stdout": output.text(), "stderr": errors.text()}
    if output.cut:
        result["stdout_cut"] = True
        return result
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        result["json"] = _decode(bytes(output.kept))
    return result


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    # A program need not read its input.
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(given)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _end(transport: asyncio.SubprocessTransport, protocol: Ends) -> None:
    """Ask the group to end, then kill it."""
    if not protocol.ended.is_set():
        _signal(transport, signal.SIGTERM)
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(protocol.ended.wait(), TERM_SECONDS)
    _signal(transport, signal.SIGKILL)
    with suppress(asyncio.CancelledError):
        await protocol.ended.wait()
    transport.close()


def _signal(transport: asyncio.SubprocessTransport, which: signal.Signals) -> None:
    # The program leads its group, so its id is the group's.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), which)


def _about(job: Job) -> dict[str, str]:
    """The identity of an attempt."""
    context = job.make_context()
    about = {
        "STEPKEEP_RUN_ID": context.run_id,
        "STEPKEEP_STEP": context.step,
        "STEPKEEP_ATTEMPT": str(context.attempt),
        "STEPKEEP_IDEMPOTENCY_KEY": context.idempotency_key,
    }
    if context.trace is not None:
        about["TRACEPARENT"] = context.trace
    if context.completion_token is not None:
        about["STEPKEEP_COMPLETION_TOKEN"] = context.completion_token
    return about


def _secret_environment(job: Job, command: Command) -> dict[str, str]:
    token = job.completion_token
    return command.env if token is None else {**command.env, "STEPKEEP_COMPLETION_TOKEN": token}


def _unstarted(command: Command, problem: OSError | ValueError) -> Failed:
    """Why a program could not be started, in our own words: Python's text quotes the directory."""
    what = f"the command {command.argv[0]!r} cannot be started"
    if isinstance(problem, ValueError):
        return _invalid(f"{what}: its arguments, environment or directory hold a NUL character or broken text")
    if isinstance(problem, FileNotFoundError | NotADirectoryError) and command.cwd and problem.filename == command.cwd:
        return _invalid(f"{what}: its directory does not exist")
    said = f"{what}: {os.strerror(problem.errno or 0)}"
    if problem.errno in _SHORTAGES:
        return Failed(category=Category.TRANSIENT, error=storable_text(said))
    return _invalid(said)


def _invalid(said: str) -> Failed:
    return Failed(category=Category.VALIDATION, error=storable_text(said), final=True)


def _found(program: str) -> str | None:
    """The path of a program, by the worker's own PATH, because a step may set another one. A relative path is never
    found."""
    if "/" in program:
        return program if program.startswith("/") else None
    return shutil.which(program)


def _located(entry: str) -> str:
    found = _found(entry)
    if not found:
        raise InvalidInput(f"the program {entry!r} cannot be allowed: it is neither on PATH nor an absolute path.")
    return found


class Tail:
    """The last part of a stream, read to its end in bounded memory."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self.kept = bytearray()
        self.cut = False

    async def read(self) -> None:
        while chunk := await self._stream.read(CAPTURE):
            self.kept += chunk
            if len(self.kept) > CAPTURE:
                self.cut = True
                del self.kept[:-CAPTURE]

    def text(self) -> str:
        return self.kept.decode("utf-8", "replace").replace("\x00", "\ufffd")
