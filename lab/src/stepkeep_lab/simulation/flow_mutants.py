"""Planted bugs of flows: how calls are recorded, how their ends wake the flow, and how it is replayed.

Data like `mutants`, which has them among its own.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

FLOW_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "flow-call-added-twice",
        "a flow that goes on reports calls again that it has reported",
        (Edit("worker.flows.replay:Flow.new_calls", ", len(self._calls)", ", self._reported"),),
    ),
    Mutant(
        "flow-wake-up-lost",
        "a call that settles while its flow runs does not wake the flow after its suspension",
        (Edit("kernel.flows:suspend", "if settled > outcome.seen:", "if False:"),),
    ),
    Mutant(
        "flow-settled-call-again",
        "a replay takes calls that are on record for new ones, and they run again",
        (Edit("worker.flows.replay:Flow.__init__", "self._reported = len(recorded)", "self._reported = 0"),),
    ),
)
