"""Steps that this worker cannot serve although it has their handler: their queues are paused, and the worker says so.

The parameters do not fit the stored inputs, or the payloads are sealed and the worker has no codec.

A deployment is the problem of its worker, not of the runs: the step is handed back without using
an attempt, and another worker may serve it. `running` notes misfits; the loop reads which queues to leave out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stepkeep.operations.remote.services import Misfit
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.runtime import Runtime

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Claim

log = logging.getLogger("stepkeep.worker")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
MOST_KEPT = 50
"""How many misfits a worker publishes."""


class MisfitError(BindingError):
    """This worker's handler does not fit the inputs that a stored definition writes down, or cannot read them."""

    def __init__(self, handler: str, said: str, *, is_usual: bool = False, unfit: str | None = None) -> None:
        """`is_usual`: no deployment is wrong, because workers of this kind never take such a step. `unfit` is a digest
        of the code of a flow that does not fit: the flow holds for other code."""
        super().__init__(said)
        self.handler, self.is_usual, self.unfit = handler, is_usual, unfit


class Misfits:
    """The misfits of one worker. A queue is paused for twice as long each time, because each try is two entries in the
    journal of the run."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pauses: dict[int, tuple[float, float]] = {}
        """For each queue, the time until which it is paused, and the length of the pause."""
        self._known: dict[tuple[int, int], Misfit] = {}

    @property
    def paused(self) -> frozenset[int]:
        """The queues that are not to be claimed from now."""
        now = self._runtime.monotonic()
        return frozenset(queue for queue, (until, _) in self._pauses.items() if now < until)

    @property
    def known(self) -> tuple[Misfit, ...]:
        return tuple(self._known.values())

    def pause(self, queue: int) -> None:
        """Pause a queue; one that is paused already stays as it is."""
        now = self._runtime.monotonic()
        until, length = self._pauses.get(queue, (float("-inf"), FIRST_PAUSE_SECONDS / 2))
        if now >= until:
            length = min(2 * length, LONGEST_PAUSE_SECONDS)
            self._pauses[queue] = (now + length, length)

    def note(self, claim: Claim, problem: MisfitError) -> None:
        """A claimed step does not fit: pause its queue, and say so once."""
        self.pause(claim.step.queue)
        key = (claim.plan.definition_id, claim.step.no)
        if key in self._known:
            return
        definition = claim.plan.definition
        which = f"step {claim.planned.name} of {definition.name} v{definition.version}"
        said = "%s is handed back: %s. This worker claims nothing for it for %g s; a worker whose code fits may"
        log.log(logging.INFO if problem.is_usual else logging.ERROR, said, which, problem, FIRST_PAUSE_SECONDS)
        if len(self._known) < MOST_KEPT:
            text = f"{which}: {problem}"
            self._known[key] = Misfit(definition=key[0], no=key[1], handler=problem.handler, text=text)
