"""Results of runs: state, error and output of many runs, in two statements for all of them.

It reads the outputs of result steps only, never the whole view of a run. It decides nothing. The waiter calls it for
runs that have settled, the engine for single ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.pipeline.plans import known_plans
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.views import describe_run, result_output
from stepkeep.store.change import RunKey
from stepkeep.store.records import RunStatus


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: its output once it has succeeded, and its error once it has failed."""

    state: RunState
    output: Any = None
    error: str | None = None


async def read_results(
    transactor: Transactor, statuses: Mapping[RunKey, RunStatus]
) -> dict[RunKey, RunResult | StepkeepError]:
    """The results of these runs; one that cannot be read is answered with its own error."""
    results: dict[RunKey, RunResult | StepkeepError] = {
        key: RunResult(state=status.state, error=status.error) for key, status in statuses.items()
    }
    succeeded = {key: status for key, status in statuses.items() if status.state is RunState.SUCCEEDED}
    plans = await known_plans(transactor, {status.definition_id for status in succeeded.values()})
    wants: list[tuple[str, str, int]] = []
    for key, status in succeeded.items():
        plan = plans.get(status.definition_id)
        if plan is None or plan.definition.output is not None:
            # A declared output may read any step, the input and states: the view has them all.
            results[key] = await _described(transactor, key)
        else:
            wants += [(*key, no) for no in plan.results]
    outputs = await transactor.store.read_outputs(wants) if wants else {}
    for key, status in succeeded.items():
        plan = plans.get(status.definition_id)
        if plan is not None and plan.definition.output is None:
            results[key] = await _result_of(
                transactor, key, status, {plan.steps[no].name: no for no in plan.results}, outputs
            )
    return results


async def _result_of(
    transactor: Transactor,
    key: RunKey,
    status: RunStatus,
    names: Mapping[str, int],
    outputs: Mapping[tuple[str, str, int], bytes | None],
) -> RunResult | StepkeepError:
    """The result of a run from the outputs of its last steps."""
    try:
        values = await transactor.payloads.outputs({(*key, no): outputs.get((*key, no)) for no in names.values()})
    except StepkeepError as problem:
        return problem
    found = {name: values[(*key, no)] for name, no in names.items()}
    return RunResult(state=status.state, output=result_output(found))


async def _described(transactor: Transactor, key: RunKey) -> RunResult | StepkeepError:
    tenant, run_id = key
    try:
        run = (await describe_run(transactor, run_id, tenant=tenant)).run
    except StepkeepError as problem:
        return problem
    return RunResult(state=run.state, output=run.output, error=run.error)
