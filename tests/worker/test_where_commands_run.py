"""One rule says where commands run, as steps, rules, hooks, sinks and git: on a file, in one's own runs, by tenant."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.bed import QUICK, Bed, On, bed_on, step

import stepkeep as sk
from stepkeep.definition.native.build import COMMANDS
from stepkeep.definition.python.registry import WORKTREE, HandlerSpec
from stepkeep.kernel.definition import Command, QueueSpec, Rule
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.worker.chores.queues import served_queues
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.loop import Worker

BY_ITSELF = msgspec.structs.replace(QUICK, commands=CommandPolicy())
RELAYING = msgspec.structs.replace(BY_ITSELF, relay_seconds=0.02)
ALLOWED = CommandPolicy(tenants=("default",))
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the rule is about root")
SPECS = {
    "step": QueueSpec(kind="command"),
    "rule": QueueSpec(kind="rules", capabilities=(COMMANDS,)),
    "git": QueueSpec(kind="python", name=f"{WORKTREE}create"),
}


def serves(worker: Worker) -> dict[str, bool]:
    """Which kinds of commands a worker takes."""
    settings = worker._settings
    served = served_queues(
        list(enumerate(SPECS.values())), sk.Registry(), capabilities=frozenset(), groups=None, settings=settings
    )
    found = {name: number in served.all for number, name in enumerate(SPECS)}
    return found | {"hook": worker._hooks.may_run("true"), "offered": "command" in worker.kinds}


def all_of(value: bool, *, but: str = "") -> dict[str, bool]:
    return {name: value is (name != but) for name in (*SPECS, "hook", "offered")}


async def test_a_worker_on_a_file_runs_commands_and_one_on_postgresql_only_those_of_allowed_tenants(
    database_url: str,
) -> None:
    async with bed_on(database_url) as bed:
        on_file = database_url.startswith("sqlite")
        assert serves(bed.worker(BY_ITSELF)) == all_of(on_file)
        assert serves(bed.worker(commands=ALLOWED)) == all_of(True)
        assert serves(bed.worker(commands=CommandPolicy(tenants=("rival", "acme")))) == all_of(False)
        assert serves(bed.worker(commands=CommandPolicy(enabled=False, tenants=("default",)))) == all_of(False)
        listed = CommandPolicy(tenants=("default",), programs=("true",))
        assert serves(bed.worker(commands=listed)) == all_of(True, but="git")


async def test_a_program_that_executes_its_own_run_runs_its_commands_but_not_the_hooks_of_others(
    database_url: str,
) -> None:
    async with bed_on(database_url) as bed:
        run_id = await bed.start(step("work", executor=Command(argv=("true",))))
        own = serves(bed.worker(BY_ITSELF, only_run=run_id))
        assert own == (all_of(True) if database_url.startswith("sqlite") else all_of(True, but="hook"))
        assert not serves(bed.worker(only_run=run_id, commands=CommandPolicy(enabled=False)))["step"]


async def test_no_command_is_claimed_on_postgresql_until_its_tenant_is_allowed(on_postgres: On, tmp_path: Path) -> None:
    async with on_postgres() as bed:
        bed.handler("work", lambda: None)
        marks = {name: tmp_path / name for name in ("step", "rule", "sink")}
        touch = {name: Command(argv=("touch", str(mark))) for name, mark in marks.items()}
        await sinks.add_sink(
            bed.transactor, "s", "command", on=["run.*"], options={"argv": list(touch["sink"].argv)},
            events=["transitions"], caller=Caller("default", "ann"),
        )  # fmt: skip
        by_step = await bed.start(step("work", executor=touch["step"]), name="by-step")
        rule = Rule(program=touch["rule"])
        by_rule = await bed.start(step("work", rules=(rule,), capabilities=(COMMANDS,)), name="by-rule")
        other = await bed.start(step("work"), name="other")
        assert await bed.finish(other, settings=RELAYING) is RunState.SUCCEEDED
        assert [(await bed.steps(one))[0].state for one in (by_step, by_rule)] == [StepState.READY] * 2
        assert not any(mark.exists() for mark in marks.values())

        async def all_done() -> bool:
            left = (await outbox.list_deliveries(bed.transactor, tenant="default"))["deliveries"]
            return not left and await bed.ended(by_step, by_rule)()

        async with asyncio.timeout(60):
            await bed.worker(RELAYING, commands=ALLOWED).run_until(all_done)
        assert all(mark.exists() for mark in marks.values())


async def test_explain_names_the_same_words_and_the_option_for_steps_and_rules(on_postgres: On) -> None:
    async with on_postgres() as bed:
        bed.handler("work", lambda: None)
        by_step = await bed.start(step("work", executor=Command(argv=("true",))), name="by-step")
        rule = Rule(program=Command(argv=("true",)))
        by_rule = await bed.start(step("work", rules=(rule,), capabilities=(COMMANDS,)), name="by-rule")
        worker = bed.worker(msgspec.structs.replace(BY_ITSELF, first_publish_seconds=0.0))

        async def is_told() -> bool:
            found = [
                (await explain(bed.transactor, one, None, tenant="default")).causes[0] for one in (by_step, by_rule)
            ]
            if {one.code for one in found} != {"forbidden"}:
                return False
            assert "it needs a worker that runs commands, and no live worker may do that" in found[0].sentence
            assert "it needs handler work with commands, and no live worker may do that" in found[1].sentence
            assert all(one.command[-2:] == ("--allow-commands", "default") for one in found)
            return True

        async with asyncio.timeout(60):
            await worker.run_until(is_told)


# -- a run of one's own ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", [{"command": ["true"]}, {"uses": "holds"}], ids=["command", "handler"])
def test_a_run_of_ones_own_needs_no_grant_for_rules_that_are_programs(database_url: str, rule: dict[str, Any]) -> None:
    registry = sk.Registry()
    for name, function in (("work", lambda: 1), ("holds", lambda output: output == 1)):
        registry.register(HandlerSpec(name=name, function=function))
    workflow = sk.Workflow("ruled", version=1)
    workflow.step("say", "work", post=[rule])
    with sk.open(database_url, registry=registry) as engine:
        result = engine.run(workflow)
        assert (result.state, result.lacking) == ("succeeded", ())


# -- root --------------------------------------------------------------------------------------------------------------
async def other_tenant(bed: Bed) -> None:
    await bed.store.publish("rival", "theirs", 1, "native", "0" * 64, b"{}", [], "zoe")


async def while_serving(worker: Worker, look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        await worker.run_until(look)


@ROOT
async def test_a_root_worker_among_several_tenants_runs_commands_only_as_another_user(
    on_each: On, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_each() as bed:
        run_id = await bed.start(step("work", executor=Command(argv=("id", "-u"))))
        worker = bed.worker()
        assert serves(worker) == all_of(True)
        await other_tenant(bed)

        async def is_off() -> bool:
            return serves(worker) == all_of(False)

        await while_serving(worker, is_off)
        assert "--commands-as USER" in caplog.text
        assert (await bed.steps(run_id))[0].state is StepState.READY
        as_root = bed.worker(commands=CommandPolicy(tenants=("default",), user=0))
        await while_serving(as_root, lambda: _is(lambda: serves(as_root) == all_of(False)))
        assert await bed.finish(run_id, commands=CommandPolicy(tenants=("default",), user=65534)) is RunState.SUCCEEDED
        assert (await bed.output(run_id, 0))["stdout"] == "65534\n"


async def _is(look: Callable[[], bool]) -> bool:
    return look()


async def test_a_worker_that_is_not_root_is_not_asked_for_another_user(on_store: On, monkeypatch: Any) -> None:
    monkeypatch.setattr("stepkeep.worker.loop.geteuid", lambda: 1000)

    async with on_store() as bed:
        await other_tenant(bed)
        run_id = await bed.start(step("work", executor=Command(argv=("true",))))
        assert await bed.finish(run_id) is RunState.SUCCEEDED


def test_unknown_users_and_secret_variables_are_refused_at_once() -> None:
    for user in ("no-such-user", "", "-1", -1, 2**40):
        with pytest.raises(sk.InvalidInput, match="no such user"):
            CommandPolicy(user=user)
    for name in ("STEPKEEP_DB", "STEPKEEP_KEY", "STEPKEEP_SECRET_TOKEN"):
        with pytest.raises(sk.InvalidInput, match="because it is a secret"):
            CommandPolicy(environment=("REGION", name))
