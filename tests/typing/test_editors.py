"""What an editor completes: pyright knows the type of every field of an answer, through both engines and the client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TYPES = {
    'engine.show("r").steps[0].attempts[-1].error': "str | None",
    'engine.show("r").run.state': "RunState",
    'engine.show("r").run.waiting_for[0].prompt': "str | UnsetType",
    'engine.show("r", step="pay").step.attempts': "list[AttemptDetail]",
    'engine.show("r", as_="ioa")': "Mapping[str, Any]",
    "engine.status().queues[0].depth": "int",
    "engine.status().workers[0].state": "WorkerState",
    "engine.statistics().statistics.slowest_steps[0].mean_seconds": "float",
    'engine.explain("r").causes[0].sentence': "str",
    "engine.approvals().approvals[0].needs.approved": "int",
    "engine.runs(limit=1).runs[0].id": "str",
    'engine.approve("r", by="bea").by': "str",
    "engine.slots.list().slots[0].held": "int",
    "engine.pauses.pause_tenant().pauses[0].reason": "str",
    'engine.triggers.add("t", "w", every="1h").state': "Literal['active', 'paused', 'removed']",
    "engine.triggers.show": "(name: str, *, firings: int = 20) -> TriggerDetails",
    'engine.jobs.start("cancel", runs=["r"]).job': "str | UnsetType",
    'engine.keys.create("ann", scopes=["read"]).secret': "str",
    "engine.audit.list().audit[0].outcome": "Outcome",
    'engine.continuations.preview("r", "retry").steps[0].step': "str",
    "engine.run(greet).output": "str",
    'client.show("r").steps[0].cost': "dict[str, float]",
    '(await on_loop.show("r")).steps[0].state': "StepState",
    "(await on_loop.resources.list()).resources[0].most": "int | None",
}
SNIPPET = """
import stepkeep as sk
from stepkeep.client import Client

@sk.flow
async def greet(ctx: sk.FlowContext, name: str) -> str:
    return name

async def show(engine: sk.Engine, client: Client, on_loop: sk.AsyncEngine) -> None:
"""
WRONG = 'engine.show("r").steps[0].attempts[-1].errror'


def test_an_editor_knows_the_type_of_every_expression_and_finds_a_field_that_is_not_there(tmp_path: Path) -> None:
    lines = [*(f"reveal_type({one})" for one in TYPES), WRONG]
    (tmp_path / "snippet.py").write_text(SNIPPET + "".join(f"    {line}\n" for line in lines), encoding="utf-8")
    pyright = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run([*pyright, "snippet.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    told = [(one["severity"], one["message"]) for one in json.loads(ran.stdout)["generalDiagnostics"]]
    found = {
        message.removeprefix('Type of "').partition('" is "')[0]: message.partition('" is "')[2].removesuffix('"')
        for severity, message in told
        if severity == "information"
    }
    assert found == TYPES
    assert [message.partition("\n")[0] for severity, message in told if severity == "error"] == [
        'Cannot access attribute "errror" for class "AttemptDetail"'
    ]
