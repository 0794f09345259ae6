"""Builds the kernel's definition from a workstream, with every default made explicit (`machine.DEFAULTS`).

It takes blocks that passed every check and cannot fail. Parts that the engine does not use go to `about`, from which
the dialect shows them again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from stepkeep.definition.native.build import VERSION, rule_capabilities
from stepkeep.definition.native.written import about_archive
from stepkeep.dialects.workstream.named_rules import Commands, final_rules, post_of, pre_of
from stepkeep.dialects.workstream.repository import program_directory, with_repository
from stepkeep.dialects.workstream.written import RepositoryBlock, TaskBlock, WorkstreamBlock
from stepkeep.kernel.definition import (
    SECOND,
    Backoff,
    Command,
    Definition,
    Dependency,
    HookFailure,
    Retry,
    StepDefinition,
)
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, OnFailure, StepState

LEASE = 30 * SECOND
GRACE = 30 * SECOND
LOSSES = 3

COMPLETED = (StepState.SUCCEEDED,)
"""A hard edge: only a completed task satisfies it."""


def build(written: WorkstreamBlock) -> Definition:
    commands = written.rule_commands
    repository = written.repository
    final = final_rules(written.validation_rules.post_execution, commands, program_directory(None, repository))
    steps = tuple(_step(task, commands, repository) for task in written.tasks)
    if repository is not None:
        # The merge comes after the final validation, so that the rules are those of a step before it.
        steps, final = with_repository(written.workstream_id, repository, steps, final), ()
    return Definition(
        name=written.workstream_id,
        version=written.version,
        steps=steps,
        dialect="workstream",
        description=written.description,
        timeout=written.max_duration_seconds,
        on_failure=OnFailure.ABORT,
        hook_failure=HookFailure.CONTINUE,
        compensate_always=False,
        rules=final,
        check_capabilities=tuple(sorted(rule_capabilities(final))) or UNSET,
        lease=LEASE,
        grace=GRACE,
        about={
            "workstream": _said(
                name=written.name, schema_version=written.schema_version, schema_url=written.schema_url
            ),
            "tasks": {task.task_id: _about(task) for task in written.tasks},
            **about_archive(written.archive),
        },
    )


def is_critical(task: TaskBlock) -> bool:
    return bool(task.critical or task.is_critical)


def _step(task: TaskBlock, commands: Commands, repository: RepositoryBlock | None) -> StepDefinition:
    execution = task.execution
    directory = program_directory(execution.working_directory, repository)
    capabilities = {*task.worker_requirements.capabilities, *(repository.capabilities if repository else ())}
    if task.worker_requirements.min_version is not None:
        capabilities.add(f"{VERSION}{task.worker_requirements.min_version}")
    return StepDefinition(
        name=task.task_id,
        # All equal: ready tasks are claimed in the order of their ids.
        order=0,
        executor=Command(argv=tuple(execution.command), cwd=directory),
        depends_on=tuple(Dependency(step=name, allow=COMPLETED) for name in task.dependencies),
        timeout=execution.timeout_seconds,
        retry=Retry(
            max_attempts=execution.max_retries + 1,
            max_losses=LOSSES,
            backoff=Backoff.EXPONENTIAL,
            initial=execution.retry_delay_seconds,
            factor=2.0,
            max=None,
            jitter=0.0,
            on=tuple(sorted(RETRIED_BY_DEFAULT)),
        ),
        on_failure=OnFailure.ABORT if is_critical(task) else OnFailure.CONTINUE,
        rules=post_of(task, commands, directory),
        pre=pre_of(task, commands, directory) or UNSET,
        capabilities=tuple(sorted(capabilities)),
        description=task.description,
        resources={name: amount for name, amount in sorted(task.resource_requirements.items()) if amount} or UNSET,
    )


def _about(task: TaskBlock) -> Mapping[str, object]:
    context = task.context_requirements
    return {
        "type": task.type,
        **_said(
            name=task.name,
            min_version=task.worker_requirements.min_version,
            context_requirements=None if context is None else context.model_dump(exclude_none=True),
            resource_requirements=task.resource_requirements,
            schema_version=task.schema_version,
            schema_url=task.schema_url,
        ),
    }


def _said(**given: object) -> Mapping[str, object]:
    """The written values, without the omitted ones."""
    return {name: value for name, value in given.items() if value not in (None, "", {})}
