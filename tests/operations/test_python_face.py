"""The public face: what the package exports, what the two engines have in common, what editors and checkers see."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import stepkeep as sk
from stepkeep.client.async_client import AsyncClient
from stepkeep.engine.blocking import Blocking, Group
from stepkeep.engine.engine import EngineOptions
from stepkeep.engine.hosted import AsyncHostedWorker, HostedWorker, WorkerOptions
from stepkeep.operations.operation import Limit, PageLimit, addressed
from stepkeep.worker.loop import Worker

ONLY_ASYNC = {"worker": "a Worker belongs to the loop that runs it; start_worker is its face for threads"}


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(found)
        for name, found in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(found)
    }


def test_a_star_import_does_not_replace_open() -> None:
    assert set(sk._homes()) - set(sk.__all__) == {"open"}


def test_every_public_name_is_found_has_words_and_is_listed() -> None:
    for name in sk._homes():
        assert inspect.getdoc(getattr(sk, name)), name
        assert name in dir(sk)


def test_a_name_that_is_not_loaded_yet_is_listed_all_the_same() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import stepkeep, sys; print('Engine' in dir(stepkeep), 'stepkeep.engine' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "True False\n"


GROUPS = [one for one in Blocking.__subclasses__() if one.__module__.startswith("stepkeep.")]
"""Other tests of the same process make groups of their own."""
PAIRS = [(sk.Engine, sk.AsyncEngine), (HostedWorker, AsyncHostedWorker)] + [
    (group, get_args(group.__orig_bases__[0])[0]) for group in GROUPS
]


@pytest.mark.parametrize(("sync", "core"), PAIRS)
def test_every_coroutine_method_has_a_blocking_form_with_the_same_signature_and_words(sync: type, core: type) -> None:
    ours, theirs = public(sync), public(core)
    assert set(theirs) - set(ours) <= {*ONLY_ASYNC, "begin"}
    assert set(ours) <= set(theirs)
    for name, signature in ours.items():
        assert list(signature.parameters.values()) == list(theirs[name].parameters.values()), name
        first, second = (inspect.getdoc(getattr(one, name)) or "" for one in (sync, core))
        assert first.partition("\n\n")[0] == second.partition("\n\n")[0] != "", name


def test_every_method_of_the_engine_and_its_groups_has_an_example_and_is_listed() -> None:
    for kind, _ in PAIRS:
        for name in () if kind is HostedWorker else public(kind):
            assert ">>> " in (getattr(kind, name).__doc__ or ""), f"{kind.__name__}.{name} has no example"
            assert name in dir(kind)


def test_every_group_of_the_engine_has_both_forms() -> None:
    groups, *others = (
        {name for name, _ in inspect.getmembers(kind, lambda found: isinstance(found, Group))}
        for kind in (sk.AsyncEngine, sk.Engine, AsyncClient)
    )
    assert others == [groups, groups]
    assert len(groups) == len(GROUPS)


def test_lists_are_bounded_alike_and_who_acts_can_be_named_at_every_address() -> None:
    seen = 0
    for one in addressed():
        assert one.hints.get("limit", Limit) in (Limit, PageLimit), one.name
        assert one.parameters["by"].place if "by" in one.parameters else True, one.name
        seen += "limit" in one.parameters
    assert seen > 8


def test_the_options_that_are_passed_on_are_those_of_the_constructors() -> None:
    engine = set(inspect.signature(sk.AsyncEngine).parameters) - {"url"}
    assert engine - set(EngineOptions.__annotations__) == {"loop"}, "a program without a loop has none to lend"
    assert set(EngineOptions.__annotations__) <= engine
    worker = set(inspect.signature(Worker).parameters)
    assert set(WorkerOptions.__annotations__) <= worker


def test_the_file_of_any_dialect_is_loaded_as_it_is_started(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    definition = sk.load_file(examples / "ioa.yaml")
    assert definition.dialect == "ioa"


SNIPPET = """
import stepkeep as sk

flow = sk.Workflow("w")
engine = sk.open("sqlite:///x.db", tenant="t")
engine.aprove("x")
engine.start(flow, {}, idempotncy_key="k")
sk.open("sqlite:///x.db", tenent="t")
engine.start_worker(concurency=3)
engine.approve("x", by="bea").get("by")
engine.run(flow, check=True).output


@sk.flow
async def buy(ctx: sk.FlowContext, order: str) -> str:
    return order


engine.run(buy).output.upperr()
engine.definitions().definitions[0].verson
"""


@pytest.mark.proof
def test_a_type_checker_finds_misspelt_methods_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--config-file=", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    found = [line.partition(": error: ")[2] for line in ran.stdout.splitlines() if ": error: " in line]
    assert len(found) == 6, ran.stdout + ran.stderr
    for word, line in zip(("aprove", "idempotncy_key", "tenent", "concurency", "upperr", "verson"), found, strict=True):
        assert word in line
