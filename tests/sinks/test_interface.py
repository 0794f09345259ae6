"""The values of the sink interface: events, patterns, kinds, and the file sink."""

from __future__ import annotations

import asyncio
import doctest
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks import event, interface, registry
from stepkeep.sinks.event import EventSource, OutgoingEvent
from stepkeep.sinks.interface import SinkContext, SinkFailed

PAID = OutgoingEvent(
    tenant="acme",
    run_id="r-1",
    seq=4,
    number=0,
    type="order.paid",
    source=EventSource.EMITTED,
    at=1_700_000_000_000_001,
    data=b'{"total": 5}',
    workflow="order",
    version=1,
    correlation_id="c-9",
    extensions={"actionid": "pay"},
)


@pytest.mark.parametrize("module", [event, interface])
def test_the_examples_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_the_envelope_is_a_cloud_event_with_a_stable_id_and_the_correlation() -> None:
    sent = json.loads(PAID.body())
    assert {name: sent[name] for name in ("specversion", "id", "type", "source", "subject")} == {
        "specversion": "1.0",
        "id": "r-1/4/0",
        "type": "order.paid",
        "source": "/stepkeep/acme/order",
        "subject": "r-1",
    }
    assert (sent["correlationid"], sent["actionid"], sent["data"]) == ("c-9", "pay", {"total": 5})
    assert all(name.isalnum() and name == name.lower() for name in sent), "as CloudEvents asks of attribute names"


@pytest.mark.parametrize(
    ("patterns", "prefix"),
    [(["order.*"], "order."), (["order.*", "mail.*"], ""), (["a", "ab"], "a"), (["*"], ""), (["x.y"], "x.y")],
)
def test_the_prefix_never_leaves_out_what_a_pattern_matches(patterns: list[str], prefix: str) -> None:
    assert event.prefix_of(patterns) == prefix
    for name in ("order.paid", "mail.sent", "a", "ab", "x.y", "x.yz"):
        assert not event.matches(patterns, name) or name.startswith(prefix)


def test_a_pattern_is_text_and_at_least_one() -> None:
    for bad in ([], [3], [""], ["a\nb"], ["x" * 201]):
        with pytest.raises(InvalidInput):
            event.check_patterns(bad)
    with pytest.raises(InvalidInput, match="at most 50"):
        event.check_patterns(f"a{n}" for n in range(51))
    assert event.check_patterns(["b", "a", "b"]) == ("a", "b")


def test_a_kind_refuses_unknown_kinds_and_options_by_name() -> None:
    assert {"jsonl", "handler", "host"} <= set(registry.kind_names())
    with pytest.raises(InvalidInput, match=r"no kind of sink 'pigeon'. There are: .*jsonl"):
        registry.kind_of("pigeon")
    jsonl = registry.kind_of("jsonl")
    with pytest.raises(InvalidInput, match=r"options of a jsonl sink: .*`colour`.* It has: path, sync"):
        jsonl.read({"path": "/a", "colour": "red"})
    with pytest.raises(InvalidInput, match="is absolute"):
        jsonl.read({"path": "here.jsonl"})


async def test_the_file_sink_writes_whole_lines_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"id": "r-0/1/0"}\n{"id": "r-')
    kind = registry.kind_of("jsonl")
    sink = await kind.open(kind.read({"path": str(path)}), SinkContext(name="file", tenant="acme"))
    await asyncio.gather(*(sink.send(replace(PAID, number=n)) for n in range(20)))
    await sink.close()
    whole, cut, *sent = path.read_text().splitlines()
    assert json.loads(whole) == {"id": "r-0/1/0"}
    assert cut == '{"id": "r-'
    assert sorted(json.loads(line)["id"] for line in sent) == sorted(f"r-1/4/{n}" for n in range(20))
    sink = await kind.open(kind.read({"path": str(tmp_path)}), SinkContext(name="file", tenant="acme"))
    with pytest.raises(SinkFailed, match="cannot be written: Is a directory"):
        await sink.send(PAID)
