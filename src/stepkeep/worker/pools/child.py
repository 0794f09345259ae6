"""The child side of a handler process: receives a task, imports the function, calls it and sends the outcome back.

It shares no memory with the worker and never uses the database. It ends at once when its pipe closes, so that no
process outlives a killed worker. A copy of it that a handler forked has no pipe, and ends when the handler returns.
`processes` starts it and talks to it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypedDict

import msgspec

from stepkeep.definition.python.handlers import load_app
from stepkeep.edges.own_process import protect_process
from stepkeep.edges.safe_text import exception_text
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, Stopped, TimedOut, Waiting
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import CallExecutor, Job
from stepkeep.worker.attempts.once import NoCheckpoints
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.cancellation import Cancellation, Why
from stepkeep.worker.context import Context, Progress
from stepkeep.worker.current import entered
from stepkeep.worker.executors.python import PythonExecutor, make_call
from stepkeep.worker.forks import end_copy
from stepkeep.worker.pools.handler_loop import Shared

CANCEL = "cancel"
READY = b"ready"
MAIN = "__stepkeep_main__"
TELL_SECONDS = 0.5
"""The shortest pause between two values of `ctx.progress` that are sent to the worker."""
NOTHING_RECORDED = NoCheckpoints("a handler in a process of its own has no database. Run it in a thread")
NOTHING_SHARED = Shared("a handler in a process of its own shares nothing with its worker")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A call that can be made in another process: where the function is, and its arguments."""

    module: str
    file: str | None
    path: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    context: PortableContext | None
    default_category: Category
    result_limit: int
    converts: bool = False
    """Whether arguments are converted to the types of the parameters."""
    title: str = "a handler"
    secrets: dict[str, str] = {}
    """The values that the log of the process hides."""
    number: int = 0
    """The number that the answer must carry; an answer with another number is dropped."""


class Answer(msgspec.Struct, frozen=True):
    """The outcome of the task with this number. Its fields are checked against the type that `kind` names."""

    number: int
    kind: str
    outcome: msgspec.Raw


Received = tuple[int, Task | Exception, Cancellation]
"""A task with its number, or why it cannot be read, and the flag that cancels it."""

_KINDS: dict[str, type[Outcome | Progress]] = {
    kind.__name__: kind
    for kind in (Completed, Waiting, Failed, results.FailedWithTraceback, TimedOut, Stopped, Progress)
}


def pack(number: int, outcome: Outcome | Progress) -> bytes:
    """An answer as plain data, so that the worker runs nothing that a handler's process sends."""
    encode = msgspec.msgpack.encode
    return encode(Answer(number, type(outcome).__name__, msgspec.Raw(encode(outcome))))


def unpack(sent: bytes) -> tuple[int, Outcome | Progress]:
    """The number and the outcome of an answer, or what its handler said before it. Raises ValueError otherwise."""
    try:
        answer = msgspec.msgpack.decode(sent, type=Answer)
        return answer.number, msgspec.msgpack.decode(answer.outcome, type=_KINDS[answer.kind])
    except (msgspec.MsgspecError, KeyError, RecursionError) as problem:
        raise ValueError(f"no answer: {exception_text(problem)}") from None


def describe(job: Job, result_limit: int, number: int = 0) -> Task:
    """The task of a job. Raises BindingError if another process cannot find its function."""
    executor = job.prepared.executor
    assert isinstance(executor, CallExecutor)
    call = executor.call(job)
    function = call.function
    module, qualname = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or not qualname or "<" in qualname:
        raise BindingError(
            f"handler {qualname or function!r} runs in a process of its own, which must find it by name: "
            "define it at the top level of a module."
        )
    takes_context = bool(call.args) and call.args[0] is job.context and job.context is not None
    return Task(
        module=module,
        file=getattr(sys.modules.get(module), "__file__", None),
        path=tuple(qualname.split(".")),
        args=call.args[1:] if takes_context else call.args,
        kwargs=call.kwargs,
        converts=isinstance(executor, PythonExecutor),
        context=_portable(job.context) if takes_context and job.context is not None else None,
        default_category=job.prepared.default_category,
        result_limit=result_limit,
        title=job.title,
        secrets=dict(job.loaded.secrets or {}),
        number=number,
    )


class PortableContext(TypedDict):
    """The part of a context that another process gets."""

    run_id: str
    tenant: str
    workflow: str
    version: int
    step: str
    undoing: bool
    attempt: int
    input: Any
    outputs: dict[str, Any]
    correlation_id: str
    business_key: str | None
    woken_by: Any
    deadline: float
    deadline_at: Any
    completion_token: str | None
    trace: str | None
    effect_of: str | None
    key_of: str | None


def _portable(context: Context) -> PortableContext:
    return {
        "run_id": context.run_id,
        "tenant": context.tenant,
        "workflow": context.workflow,
        "version": context.version,
        "step": context.step,
        "undoing": context.undoing,
        "attempt": context.attempt,
        "input": context.input,
        # The child has no database connection, so all of them are sent.
        "outputs": dict(context.outputs),
        "correlation_id": context.correlation_id,
        "business_key": context.business_key,
        "woken_by": context.woken_by,
        "deadline": context.deadline,
        "deadline_at": context.deadline_at,
        "completion_token": context.completion_token,
        "trace": context.trace,
        "effect_of": context.effect_of,
        "key_of": context.key_of,
    }


def live(descriptor: int) -> None:
    """Serve tasks from the pipe until it closes."""
    line, pid = Connection(descriptor), os.getpid()
    # A copy must hold no end of the pipe: the worker would wait for it after this process has ended.
    os.register_at_fork(after_in_child=partial(_let_go, descriptor))
    memory_limit, sys.path[:], is_protected = line.recv()
    if is_protected:
        protect_process()
    os.environb.update(line.recv())
    if memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    tasks: SimpleQueue[Received] = SimpleQueue()
    threading.Thread(target=_listen, args=(line, tasks), daemon=True).start()
    surroundings, teller = Surroundings(), Teller(line)
    line.send_bytes(READY)
    while True:
        number, task, cancelled = tasks.get()
        outcome = copy_context().run(_attempt, task, cancelled, teller)
        end_copy(pid)
        teller.attempt = None
        surroundings.restore()
        try:
            teller.send(_packed(number, outcome))
        except OSError:
            # The handler closed the pipe, so no answer can be sent; the end of the process reports the failure.
            os._exit(1)


class Teller:
    """Sends to the worker: answers at once, and progress from a thread of its own, the last value of each pause."""

    def __init__(self, line: Connection) -> None:
        self.attempt: tuple[int, Context] | None = None
        self._line, self._sending, self._due = line, threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, sent: bytes) -> None:
        with self._sending:
            self._line.send_bytes(sent)

    def note(self) -> None:
        """The handler said how far it is."""
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_progress, daemon=True)
            # Without memory for a thread the values are not shown; the handler goes on.
            with suppress(RuntimeError, MemoryError):
                self._thread.start()

    def _send_progress(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            attempt = self.attempt
            if attempt is not None and (said := attempt[1].last_progress) is not None:
                try:
                    self.send(pack(attempt[0], said))
                except OSError:
                    # The pipe is closed; the process ends with its handler.
                    return
            time.sleep(TELL_SECONDS)


class Surroundings:
    """The process-wide state that a handler may change, as it was at the start: variables, directory, file mask.

    The next task may belong to another run. State of the handler's own modules stays.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environb)
        self._directory = os.getcwd()
        self._mask = os.umask(0o77)
        os.umask(self._mask)

    def restore(self) -> None:
        os.umask(self._mask)
        try:
            os.chdir(self._directory)
        except OSError:
            # It was removed or is not accessible; any other directory is better than the last handler's.
            os.chdir("/")
        if dict(os.environb) != self._environment:
            os.environb.clear()
            os.environb.update(self._environment)


def _let_go(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def _packed(number: int, outcome: Outcome) -> bytes:
    try:
        sent = pack(number, outcome)
        unpack(sent)
    except Exception as problem:  # noqa: BLE001 - an outcome that cannot travel is a failure that can
        said = storable_text(f"the result cannot be sent: {exception_text(problem)}")
        return pack(number, Failed(category=Category.VALIDATION, error=said, final=True))
    return sent


def _listen(line: Connection, tasks: SimpleQueue[Received]) -> None:
    current, cancelled = 0, Cancellation()
    while True:
        try:
            number, sent = line.recv()
        except (EOFError, OSError):
            os._exit(0)
        if sent == CANCEL:
            # A cancellation for the previous task arrived too late and is ignored.
            if number == current:
                cancelled.set(Why.RUN_STOPPING)
        else:
            current, cancelled = number, Cancellation()
            tasks.put((number, _loaded(sent), cancelled))


def _loaded(sent: bytes) -> Task | Exception:
    try:
        return pickle.loads(sent)  # type: ignore[no-any-return]  # noqa: S301 - from our own worker
    except Exception as problem:  # noqa: BLE001 - inputs of types that only the worker can load
        return problem


def _attempt(task: Task | Exception, cancelled: Cancellation, teller: Teller) -> Outcome:
    if isinstance(task, Exception):
        return results.outcome_of_exception(
            BindingError(f"the inputs cannot be read: {exception_text(task)}"), None, cancelled
        )
    KNOWN.remember(task.secrets)
    context = None
    if task.context is not None:
        context = Context(
            **task.context,
            cancelled=cancelled,
            shared=NOTHING_SHARED,
            progressed=teller.note,
            checkpoints=NOTHING_RECORDED,
        )
        teller.attempt = (task.number, context)
    try:
        entered(None if context is None else lambda: context)
        function = _find(task)
        args = task.args if context is None else (context, *task.args)
        returned = make_call(function, args, task.kwargs, context) if task.converts else function(*args, **task.kwargs)
        outcome = results.outcome_of_return(returned, context, task.result_limit, otherwise=task.default_category)
    except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt, not the process
        outcome = results.outcome_of_exception(problem, context, cancelled, task.default_category, task.title)
    return outcome


def _find(task: Task) -> Callable[..., Any]:
    try:
        found: Any = _module(task)
        for name in task.path:
            found = getattr(found, name)
    except (ImportError, AttributeError, OSError) as problem:
        raise BindingError(
            f"the handler {task.module}.{'.'.join(task.path)} cannot be found by its own process: "
            f"{exception_text(problem)}"
        ) from None
    return found  # type: ignore[no-any-return]


def _module(task: Task) -> Any:
    if task.module == "__main__":
        return _main_module(task.file)
    try:
        return importlib.import_module(task.module)
    except ImportError:
        if task.file is None:
            raise
        return load_app(task.file)


def _main_module(file: str | None) -> Any:
    # The worker's own script, under another name, so that its `if __name__ == "__main__"` part does not run again.
    if MAIN in sys.modules:
        return sys.modules[MAIN]
    spec = None if file is None else importlib.util.spec_from_file_location(MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError("the worker's main program is no file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN]
        raise
    return module
