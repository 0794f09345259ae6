"""Runs the steps that a workstream's repository brings: `stepkeep.worktree.create`, `.plan`, `.merge` and `.cleanup`.

They are programs (git), so that a worker that runs no commands, or not this one, leaves them to others. It turns the
problems of an action into outcomes; `worktrees/actions.py` does the work.
"""

from __future__ import annotations

from typing import Any, Final

from stepkeep.definition.python.registry import WORKTREE
from stepkeep.kernel.definition import Handler
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.attempts.executor import Job, PoolKind
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.worktrees.actions import ACTIONS, place_of
from stepkeep.worker.worktrees.git import GitProblemError

GIT: Final = "git"


def may_use_git(policy: CommandPolicy) -> bool:
    """Whether this worker runs git for workstreams."""
    return policy.enabled and (policy.programs is None or any(_is_git(one) for one in policy.programs))


def _is_git(program: str) -> bool:
    return program.rpartition("/")[2] == GIT


class WorktreeExecutor:
    """Runs the actions on worktrees."""

    spec = None

    def __init__(self, policy: CommandPolicy) -> None:
        self._policy = policy

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.LOOP

    async def run(self, job: Job) -> Any:
        executor = job.prepared.planned.executor
        assert isinstance(executor, Handler)
        action, context = executor.name.removeprefix(WORKTREE), job.make_context()
        place = place_of(job.prepared.render(job), context.run_id)
        try:
            return await ACTIONS[action](place, self._policy.identity)
        except GitProblemError as problem:
            last = job.prepared.planned.retry.max_attempts
            if action == "cleanup" and context.attempt >= last:
                # The work is merged: what is left over must not fail the run.
                return {"removed": False, "branch": place.branch, "why": storable_text(str(problem))}
            return Failed(category=problem.category, error=storable_text(str(problem)), final=problem.final)
