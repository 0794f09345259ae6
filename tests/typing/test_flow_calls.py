"""Calls of flows have types: mypy and pyright accept what is right, and refuse a wrong argument, a wrong use of the
result and a misspelt option in each kind of call. Examples of flows pass both without casts."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stepkeep as sk
from stepkeep.definition.python.workflow import GateOptions

ROOT = Path(__file__).parents[2]
HEAD = """
from __future__ import annotations

import asyncio
from dataclasses import dataclass

import stepkeep as sk
from stepkeep.client import Client


@dataclass
class Paid:
    cents: int


@sk.step
def double(n: int) -> int:
    return 2 * n


@sk.step
async def join(parts: list[int], between: str = "-") -> str:
    return between.join(map(str, parts))


@sk.step
def charge(ctx: sk.Context, cents: int) -> Paid:
    return Paid(cents)


@sk.flow
async def other(ctx: sk.FlowContext, cents: int) -> Paid:
    return await ctx.step(charge, cents)


@sk.flow("named", version=2, max_calls=5, deadline="1d")
async def named(ctx: sk.FlowContext) -> list[int]:
    return [1]


"""
RIGHT = {
    "await ctx.step(double, 1)": "int",
    "await ctx.step(join, [1], between='+')": "str",
    "await ctx.step(charge, cents=1)": "Paid",
    "await ctx.options(timeout='5s', retry=sk.Retry(max_attempts=2)).step(charge, 1)": "Paid",
    "await ctx.map(double, [1, 2])": "list[int]",
    "await ctx.map(charge, [1], in_flight=2)": "list[Paid]",
    "await ctx.map(join, [[1]], between='+')": "list[str]",
    "await ctx.once('now', double, 1)": "int",
    "await ctx.once('later', join, [1])": "str",
    "await ctx.child(other, {'cents': 1}, deadline='1h')": "Paid",
    "await ctx.child(other, {'cents': 1}, detached=True)": "Any",
    "await ctx.wait_for('paid', as_=Paid)": "Paid",
    "await ctx.wait_for('paid', as_=list[Paid], count=2)": "list[Paid]",
    "await ctx.gate('Send it?', roles=['finance'], quorum=2)": "dict[str, Any]",
    "await ctx.sleep('2d')": "None",
    "await ctx.patched('new')": "bool",
    "await asyncio.gather(ctx.step(double, 1), ctx.step(join, [1]))": "tuple[int, str]",
    "asyncio.create_task(ctx.step(double, 1)).result()": "int",
    "engine.run(other, {'cents': 1}).output": "Paid",
    "engine.run(named).output": "list[int]",
    "(await on_loop.run(other, {'cents': 1})).output": "Paid",
    "client.run(other, {'cents': 1}).output": "Paid",
}
WRONG = [
    "await ctx.step(double, 'one')",
    "await ctx.step(double)",
    "await ctx.step(charge, '1')",
    "await ctx.step(join, [1], betwen='+')",
    "a: str = await ctx.step(double, 1)",
    "b: int = await ctx.step(charge, 1)",
    "await ctx.options(timeot='5s').step(double, 1)",
    "await ctx.options(timeout='5s').step(double, 'one')",
    "await ctx.map(double, ['one'])",
    "await ctx.map(double, [1], in_fligth=2)",
    "await ctx.map(join, [[1]], between=3)",
    "c: list[str] = await ctx.map(double, [1])",
    "await ctx.once('now', double, 'one')",
    "await ctx.once('now', double, m=1)",
    "d: str = await ctx.once('now', double, 1)",
    "await ctx.child(other, {}, deadlin='1h')",
    "await ctx.child(7)",
    "e: int = await ctx.child(other, {})",
    "await ctx.wait_for(7)",
    "await ctx.wait_for('paid', dealine='1h')",
    "f: int = await ctx.wait_for('paid', as_=Paid)",
    "await ctx.gate('Send it?', quorums=2)",
    "await ctx.gate('Send it?', quorum='two')",
    "g: str = await ctx.gate('Send it?')",
    "await ctx.sleep(for_='2d')",
    "h: int = engine.run(other, {}).output",
    "engine.run(other, {}, chek=True)",
    "i: int = (await on_loop.run(other, {})).output",
    "sk.flow('x', max_cals=3)",
    "sk.flow('x', on_failure='explode')",
    "sk.flow(double)",
]


BEGIN = "async def show(ctx: sk.FlowContext, engine: sk.Engine, on_loop: sk.AsyncEngine, client: Client) -> None:\n"
FIRST = (HEAD + BEGIN).count("\n") + 1
"""The number of the line after the head."""

Told = list[tuple[str, int, str, str]]
"""File, line, kind and message of what a checker says."""


def mypy_says(folder: Path) -> Told:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-codes", "."]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    found = (re.match(r"(.*?):(\d+): (\w+): (.*)", line) for line in ran.stdout.splitlines())
    return [(one[1], int(one[2]), one[3], one[4]) for one in found if one is not None]


def pyright_says(folder: Path) -> Told:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "."]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    told = json.loads(ran.stdout)["generalDiagnostics"]
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["severity"], one["message"]) for one in told
    ]


def examples() -> dict[str, str]:
    """The examples that have a flow."""
    page = (ROOT / "docs" / "flows.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    of_page = {f"example_{number}.py": text for number, text in enumerate(found) if "import stepkeep" in text}
    files = sorted((ROOT / "examples").rglob("*.py"))
    return of_page | {path.name: text for path in files if "@sk.flow" in (text := path.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module", params=[mypy_says, pyright_says], ids=["mypy", "pyright"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a checker says of the lines above and of the examples."""
    folder: Path = tmp_path_factory.mktemp("calls")
    lines = {"right.py": [f"reveal_type({one})" for one in RIGHT], "wrong.py": WRONG}
    for name, body in lines.items():
        (folder / name).write_text(HEAD + BEGIN + "".join(f"    {line}\n" for line in body), encoding="utf-8")
    for name, text in examples().items():
        (folder / name).write_text(text, encoding="utf-8")
    found: Told = request.param(folder)
    return found


def test_calls_have_the_types_of_their_handlers(told: Told) -> None:
    said = [re.sub(r"\bright\.|builtins\.", "", message) for name, _, _, message in told if name == "right.py"]
    found = [one[1] for one in (re.search(r'(?:Revealed type is "| is ")(.*)"', message) for message in said) if one]
    assert dict(zip(RIGHT, found, strict=True)) == RIGHT


def test_wrong_arguments_options_and_uses_of_results_are_errors(told: Told) -> None:
    refused = {WRONG[line - FIRST] for name, line, kind, _ in told if (name, kind) == ("wrong.py", "error")}
    assert refused == set(WRONG)


def test_examples_of_flows_have_no_errors_and_no_casts(told: Told) -> None:
    assert len(examples()) > 8
    assert [name for name, text in examples().items() if "cast(" in text] == []
    assert [one for one in told if one[0] != "wrong.py" and one[2] == "error"] == []


def test_a_gate_has_the_options_of_an_approval() -> None:
    of_approval = set(inspect.signature(sk.Workflow.approval).parameters) - {"self", "name", "prompt", "options"}
    assert set(GateOptions.__annotations__) == of_approval | {"description"}
