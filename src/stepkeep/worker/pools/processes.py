"""Processes for handlers that must be killable: one job at a time each, reused afterwards.

A process is new (never forked from the worker, whose threads and connections it would inherit), leads its own group and
ends with the worker. If it dies, only its attempt is lost: the outcome says `killed:9`. Tasks have numbers, which their
answers carry, so a second answer cannot count for another job.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import stepkeep
from stepkeep.edges import own_process
from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.machine.outcomes import Failed, Outcome, Released, Stopped, TimedOut
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.cancellation import Why
from stepkeep.worker.context import Progress
from stepkeep.worker.pools.child import CANCEL, READY, Task, describe, unpack
from stepkeep.worker.pools.threads import ThreadPool

# The user's directories are sent later: a file there may have the name of a module that we need.
_START = (
    "import sys; sys.path.append(sys.argv[2]); from stepkeep.worker.pools.child import live; live(int(sys.argv[1]))"
)
_OURS = str(Path(stepkeep.__file__).parents[1])
_AT_START = ("PATH", "PYTHON", "LD_", "DYLD_", "LC_", "LANG", "TZ", "TMPDIR", "HOME")
"""The variables that an interpreter needs at its start. The others follow when it is closed to other programs."""


class Child:
    """One process and the pipe to it."""

    def __init__(self, memory_limit: int | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs, ours:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), _OURS],
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name.startswith(_AT_START)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            self.line: Connection = Connection(ours.detach())
        self.is_ready = False
        try:
            paths = [str(Path(path).absolute()) for path in sys.path]
            self.line.send((memory_limit, paths, own_process.is_protected))
            self.line.send(dict(os.environb))
        except OSError:
            self.discard()
            raise

    def kill(self) -> None:
        """End the process and everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def discard(self) -> int:
        """Wait until the process is gone. Returns its exit status (negative: the signal)."""
        self.line.close()
        try:
            status = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait()
        # Processes that it started are in its group and would remain.
        self.kill()
        return status


class ProcessPool(ThreadPool):
    """Runs functions in processes; one thread of the worker waits for each while it runs."""

    name = "stepkeep-process"
    work = "steps that run in processes"

    def __init__(self, size: int, *, result_limit: int, memory_limit: int | None = None) -> None:
        super().__init__(size, result_limit=result_limit)
        self._memory_limit = memory_limit
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def stop(self, job: Job) -> None:
        child: Child | None = job.handle
        if child is not None:
            child.kill()

    def close(self) -> None:
        with self._lock:
            children, self._idle = list(self._all), []
        for child in children:
            child.kill()
        super().close()
        for child in children:
            child.process.wait()

    def _attempt(self, job: Job) -> Outcome:
        number = next(self._numbers)
        try:
            task = describe(job, self._result_limit, number)
        except BaseException as problem:  # noqa: BLE001 - rendering or binding failed: that ends the attempt
            return results.outcome_of_exception(problem, job.context, job.cancelled)
        try:
            child = self._take_child()
        except (OSError, RuntimeError, subprocess.SubprocessError) as problem:
            return self._cannot(f"no process can be started: {exception_text(problem)}")
        job.handle = child
        try:
            outcome = self._ask(child, job, task)
        except (EOFError, OSError):
            return self._child_died(child, job)
        except BaseException as problem:  # noqa: BLE001 - inputs that cannot be sent, or an answer that is none
            child.kill()
            self._child_died(child, job)
            return results.outcome_of_exception(
                problem, job.context, job.cancelled, job.prepared.default_category, job.title
            )
        finally:
            job.handle = None
        with self._lock:
            self._idle.append(child)
        return outcome

    def _cannot(self, why: str) -> Outcome:
        """No attempt was made: the step is released, and nothing is counted."""
        self.fitness.lost(why)
        return Released()

    def _ask(self, child: Child, job: Job, task: Task) -> Outcome:
        if job.cancelled.why not in (None, Why.RUN_STOPPING):
            child.kill()
        child.line.send((task.number, pickle.dumps(task)))
        may_cancel = [True]

        def send_cancel() -> None:
            # After the answer this process runs another job, which must not be cancelled by this flag.
            if may_cancel and job.cancelled.why is Why.RUN_STOPPING:
                with suppress(OSError):
                    child.line.send((task.number, CANCEL))

        job.cancelled.add_callback(send_cancel)
        try:
            if not child.is_ready:
                child.is_ready = child.line.recv_bytes() == READY
            while True:
                number, sent = unpack(child.line.recv_bytes())
                # An answer to another task comes from a copy that an earlier handler forked.
                if number != task.number:
                    continue
                if not isinstance(sent, Progress):
                    return sent
                if job.context is not None:
                    job.context.progress(sent.fraction, sent.text)
        finally:
            may_cancel.clear()

    def _take_child(self) -> Child:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        child = Child(self._memory_limit)
        with self._lock:
            self._all.add(child)
        return child

    def _child_died(self, child: Child, job: Job) -> Outcome:
        with self._lock:
            self._all.discard(child)
        status = child.discard()
        if job.cancelled.why is Why.TIMED_OUT:
            return TimedOut()
        if job.cancelled.why is Why.RUN_STOPPING:
            return Stopped()
        if not child.is_ready and job.cancelled.why is None:
            return self._cannot(f"a process ended before it could run anything (status {status})")
        if status < 0:
            said = f"killed:{-status}: the handler's process was ended by {_signal_name(-status)}"
        else:
            said = f"exited:{status}: the handler's process ended without an answer"
        return Failed(category=Category.UNKNOWN, error=said)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # The realtime signals between the first and the last have no name.
        return f"signal {number}"
