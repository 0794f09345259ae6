"""A dialect is found by its name or by what a document looks like, and its machines without its front end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.tellings import encoded, toy_among_dialects
from tests.workbench import TENANT, Bench, benches

from stepkeep.conformance.report import Code
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.text.document import parse_document, read_document
from stepkeep.dialects import registry
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.operations.logs.log import export_worker
from stepkeep.operations.pipeline import workers

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_there_are_five_dialects_in_the_order_of_the_seeds() -> None:
    assert registry.names() == ("ioa", "run", "linear", "action", "workstream")
    assert [registry.judged(name).name for name in registry.names()] == list(registry.names())
    assert [registry.dialect(name).name for name in registry.names()] == list(registry.names())


def test_a_package_without_machines_is_no_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PACKAGES, "hollow", "stepkeep.edges")
    monkeypatch.setitem(registry.PACKAGES, "missing", "stepkeep.dialects.nowhere")
    assert {"hollow", "missing"}.isdisjoint(registry.names())


@pytest.mark.parametrize("name", registry.PACKAGES)
def test_the_machines_of_a_dialect_come_without_its_front_end(name: str) -> None:
    program = (
        "import sys\n"
        "from stepkeep.dialects.registry import judged\n"
        f"judged({name!r})\n"
        "print([one for one in sys.modules if one.startswith('stepkeep.dialects.') and one.endswith('.front')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_taken_for_what_it_is_and_for_nothing_else(file: Path) -> None:
    data = read_document(file).data
    written_in = file.stem.partition("_")[0]
    expected = written_in if written_in in registry.names() else "native"
    assert registry.recognise(data) == expected
    assert [name for name in registry.names() if registry.dialect(name).front.recognises(data)] == (
        [] if expected == "native" else [expected]
    )
    definition = registry.load_file(file)
    assert definition.dialect == expected


@pytest.mark.parametrize("data", [None, 7, "text", [], {}, [{"name": "x"}], {"steps": 1}, {"kind": []}, {1: 2}])
def test_what_looks_like_nothing_is_left_to_the_native_format(data: object) -> None:
    assert registry.recognise(data) == "native"


def test_what_two_dialects_claim_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    with toy_among_dialects():
        monkeypatch.setitem(registry.PACKAGES, "twin", "tests.conformance.toy")
        document = parse_document("parcel: p\nlegs: [a]\n")
        with pytest.raises(InvalidInput, match="could be toy or twin"):
            registry.recognise(document.data)
        report = registry.examine(document)
        assert "--as" in report.problems[0].message
        found = registry.examine(document, as_="toy").definition
        assert found is not None
        assert found.dialect == "toy"


def test_a_file_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot be read"):
        registry.load_file(tmp_path / "nowhere.yaml")
    with pytest.raises(InvalidInput, match="Did you mean linear"):
        registry.load_file(tmp_path / "nowhere.yaml", as_="liner")


async def test_a_workers_life_is_told_where_a_dialect_has_words_for_it(tmp_path: Path) -> None:
    async def lines(bench: Bench) -> list[bytes]:
        worker = await workers.register(bench.store, tenant=TENANT, app="bench", capacity=1)
        worker = await workers.mark_busy(bench.store, worker)
        worker = await workers.beat(bench.store, worker)
        await workers.shut_down(bench.store, worker)
        with pytest.raises(InvalidInput, match="no words for workers"):
            await anext(export_worker(bench.transactor, worker.id, tenant=TENANT, dialect="ioa"))
        told = export_worker(bench.transactor, worker.id, tenant=TENANT, dialect="workstream")
        return encoded([line async for line in told])

    async with benches(f"sqlite:///{tmp_path}/keep.db") as [bench]:
        log = await lines(bench)
    workstream = registry.judged("workstream")
    assert replay_lines(log, workstream).ok
    assert [finding.code for finding in replay_lines([*log[:1], *log[2:]], workstream).findings] == [Code.GAP]
