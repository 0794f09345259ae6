"""Planted bugs of remote workers: requests that are repeated, answers that were lost, and what is told on the way.

Data like `mutants`, which has them among its own.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

REMOTE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "remote-request-done-twice",
        "a claim or a report whose request comes twice is carried out twice",
        (Edit("operations.remote.work_state:WorkState.once", "if request is None:", "if True:"),),
    ),
    Mutant(
        "remote-report-mistaken",
        "a report of a later attempt is taken for a repetition of an earlier one",
        (Edit("worker.remote.transactor:_name_of", "{one.fence} ", ""),),
    ),
    Mutant(
        "remote-wait-unfiltered",
        "what a handler wants to wait for is lost on its way to the service",
        (
            Edit(
                "operations.remote.work_outcomes:outcome_json",
                "if value is not None and",
                'if value is not None and name != "where" and',
            ),
        ),
    ),
    Mutant(
        "remote-renewal-unsent",
        "a renewal is answered, and leaves the lease as it was",
        (
            Edit(
                "operations.remote.remote_work:RemoteWork.renew",
                "renewed = await self._store.renew(mine) if mine else []",
                'renewed = [Renewed(one.run_id, one.no, one.fence, "running") for one in mine]',
            ),
        ),
    ),
    Mutant(
        "remote-flow-ends-unseen",
        "how many ends of calls a flow was given is lost on its way to the service",
        (
            Edit(
                "operations.remote.work_outcomes:outcome_json",
                "elif value is not None and",
                'elif value is not None and name != "seen" and',
            ),
        ),
    ),
)
