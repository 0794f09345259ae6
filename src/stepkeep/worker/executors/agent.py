"""Named agents: a registered function that receives an action as text and inputs, as `f(ctx, action, inputs)`.

Its exceptions count as `agent` errors, which are retried by default, unless they name another category.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Agent
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import Call, Job, PoolKind
from stepkeep.worker.current import entered
from stepkeep.worker.executors.python import POOLS


class AgentExecutor:
    """Runs `agent:` steps."""

    def __init__(self, registry: Registry, shared: Mapping[str, Any] | None = None) -> None:
        self._registry, self._shared = registry, shared

    def spec(self, planned: PlannedStep) -> HandlerSpec:
        executor = planned.executor
        assert isinstance(executor, Agent)
        found = self._registry.agent(executor.name)
        if found is None:
            raise BindingError(
                f"this worker has no agent {executor.name}; load the module that registers it with --app"
            )
        return found

    def pool(self, planned: PlannedStep) -> PoolKind:
        return POOLS[self.spec(planned).runs_in]

    def call(self, job: Job) -> Call:
        spec, executor = job.prepared.spec or self.spec(job.prepared.planned), job.prepared.render_executor(job)
        assert isinstance(executor, Agent)
        inputs = job.prepared.render(job)
        return Call(
            spec.function, (job.make_context(self._shared), executor.action, {} if inputs is None else inputs), {}
        )

    def run(self, job: Job) -> Any:
        function, args, kwargs = self.call(job)
        entered(lambda: job.make_context(self._shared))
        return function(*args, **kwargs)
