"""There is one way to write a test that awaits: `async def`, which `tests/conftest.py` runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def wrapped(source: str) -> Iterator[str]:
    """The test functions that run a coroutine function of their own, where hypothesis does not call them itself."""
    for test in ast.walk(ast.parse(source)):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
            continue
        if any(_name(one) in ("given", "drawn") for one in test.decorator_list):
            continue
        inner = {node.name for node in ast.walk(test) if isinstance(node, ast.AsyncFunctionDef)}
        for call in ast.walk(test):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "asyncio.run" and _name(call.args[0]) in inner:
                yield test.name


def _name(argument: ast.expr) -> str | None:
    return ast.unparse(argument.func) if isinstance(argument, ast.Call) else None


def test_no_test_runs_a_loop_of_its_own() -> None:
    found = [(path.name, name) for path in HERE.rglob("test_*.py") for name in wrapped(path.read_text("utf-8"))]
    assert not found, "write `async def test_…` in place of a closure and asyncio.run"


def test_a_closure_in_a_test_is_found() -> None:
    source = "def test_a():\n    async def go(): ...\n    asyncio.run(go())\n"
    assert list(wrapped(source)) == ["test_a"]
    assert list(wrapped(f"@given(x)\n{source}")) == []
    assert list(wrapped("def test_b():\n    asyncio.run(of_a_module())\n")) == []
