"""The environment of one seed: loop, database, processes, and the means to inject faults.

Workers, server, people and handlers reach everything else through it, so that a paused, killed or disconnected process
stays so. It has no behaviour of its own; `run_seed` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import Any

from stepkeep.worker.attempts.executor import Job
from stepkeep_lab.simulation.checkpoints import Recorded
from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.faults import Fault, FaultLog, FaultyWire
from stepkeep_lab.simulation.ledger import Effect, Ledger
from stepkeep_lab.simulation.loop import Process, VirtualLoop, current
from stepkeep_lab.simulation.receivers import Receivers
from stepkeep_lab.simulation.scenario import Scenario
from stepkeep_lab.simulation.store import ModelStore

EPOCH = 1_700_000_000_000_000
IDLE_IN_TRANSACTION = 60.0
TENANT = "acme"
QUIET = 5.0
"""How long nothing must have gone wrong before workers must be able to say goodbye."""


class Stage:
    """`chaos` is True while things may still go wrong; `trouble_at` when something last held up all processes."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loop = VirtualLoop(self.random("scheduler"))  # type: ignore[abstract]
        self.database = Database(self.now)
        self.log = FaultLog(self.loop.time)
        self.ledger = Ledger()
        self.checkpoints = Recorded(self.ledger)
        self.receivers: Receivers | None = Receivers(self, TENANT) if scenario.sinks else None
        self.chaos = True
        self.is_down = False
        self.trouble_at = float("-inf")
        self.on_death: dict[Process, Callable[[], None]] = {}
        self._server, self._server_context = Process("database"), copy_context()
        self._server_context.run(current.set, self._server)

    def random(self, purpose: str) -> Random:
        """A source of chance of one's own, so that one thing less somewhere changes nothing elsewhere."""
        return Random(f"{self.scenario.seed}:{purpose}")  # noqa: S311 - chance that must come out the same again

    def now(self) -> int:
        """The database's clock; a coarse one shows the same time twice, which is when equality matters."""
        now, tick = self.loop.time(), self.scenario.tick
        return EPOCH + round((now - now % tick if tick else now) * 1_000_000)

    def later(self, delay: float, work: Callable[..., object], *args: Any) -> None:
        """Let something happen at the database's side, whatever becomes of the processes."""
        self.loop.call_for(self._server, self._server_context, delay, work, *args)

    def store(self, process: Process) -> ModelStore:
        """The database as this process reaches it."""
        return ModelStore(self.database, FaultyWire(self, process))

    # -- harm --------------------------------------------------------------------------------------------------------
    def trouble(self, process: Process, until: float | None = None) -> None:
        """Something went wrong for this process; what it holds may keep others waiting too."""
        moment = self.loop.time() if until is None else until
        process.trouble_at = max(process.trouble_at, moment)
        self.trouble_at = max(self.trouble_at, moment)

    @property
    def is_quiet(self) -> bool:
        return not self.chaos and self.loop.time() > self.trouble_at + QUIET

    def may_kill(self, process: Process) -> bool:
        return process in self.on_death and process.alive

    def kill(self, process: Process) -> None:
        """Nothing of it runs any more; the database notices a little later."""
        if not self.may_kill(process):
            return
        self.trouble(process)
        died = self.on_death.pop(process)
        self.end(process)
        self.later(0.0, died)

    def end(self, process: Process) -> None:
        """A process is over, one way or the other, and its connections with it."""
        self.on_death.pop(process, None)
        self.loop.kill(process)
        random = self.random(f"{process.name}:end")
        for session in list(self.database.sessions):
            if session.client is process:
                self.later(random.choice((0.0, 0.5, 3.0)), session.abort)

    def pause(self, process: Process, seconds: float) -> None:
        """It stands still; its connections stay open, until the database loses patience."""
        self.trouble(process, self.loop.time() + seconds)
        self.loop.pause(process)
        self.later(seconds, self.loop.resume, process)
        for session in list(self.database.sessions):
            if session.client is process:
                self.later(IDLE_IN_TRANSACTION, session.abort)

    def restart_database(self, seconds: float) -> None:
        """Every connection breaks, and for a while there is no server to connect to."""
        self.log.note(Fault.RESTART, f"{seconds:.3f}")
        self.trouble_at = max(self.trouble_at, self.loop.time() + seconds)
        self.database.crash()
        self.is_down = True
        self.later(seconds, self._is_up)

    def _is_up(self) -> None:
        self.is_down = False

    # -- what handlers do --------------------------------------------------------------------------------------------
    def act(self, place: tuple[str, int, int], key: str) -> None:
        self.ledger.effects.append(Effect(*place, key))

    def judging_time(self, job: Job) -> float:
        claim = job.claim
        random = self.random(f"rules:{claim.run_id}:{claim.step.no}:{claim.step.fence}")
        return random.choice((0.1, 1.0, 6.0)) * random.random()
