"""Seed 000 section 5.2: no cycles, known dependencies, a root, everything reachable; also with ten thousand steps."""

import time

import pytest
from hypothesis import strategies as st
from tests.suites import drawn, in_proof

from stepkeep.definition.native.graph import Ancestry, Node, check_graph


def graph(**after: list[str]) -> list[Node]:
    return [
        Node(name, ("steps", n), tuple((other, ("steps", n, "depends_on", k)) for k, other in enumerate(others)))
        for n, (name, others) in enumerate(after.items())
    ]


def said(nodes: list[Node]) -> list[str]:
    return [finding.message for finding in check_graph(nodes)]


def test_a_diamond_is_a_plan() -> None:
    assert said(graph(a=[], b=["a"], c=["a"], d=["b", "c"])) == []


def test_a_cycle_is_named_in_the_order_of_running() -> None:
    assert said(graph(a=["c"], b=["a"], c=["b"])) == ["These steps wait for each other: a → b → c → a."]


def test_a_cycle_is_found_behind_a_root_and_before_other_steps() -> None:
    nodes = graph(root=[], a=["root", "b"], b=["a"], after=["b"])
    assert said(nodes) == ["These steps wait for each other: a → b → a."]


def test_the_shortest_way_round_is_named() -> None:
    nodes = graph(a=["e"], b=["a"], c=["b"], d=["c"], e=["d", "a"])
    assert said(nodes) == ["These steps wait for each other: a → e → a."]


def test_two_cycles_are_two_problems() -> None:
    assert said(graph(a=["b"], b=["a"], c=["d"], d=["c"])) == [
        "These steps wait for each other: a → b → a.",
        "These steps wait for each other: c → d → c.",
    ]


def test_a_long_cycle_is_shortened() -> None:
    nodes = graph(**{f"s{n}": [f"s{(n - 1) % 100}"] for n in range(100)})
    (message,) = said(nodes)
    assert message.endswith("s11 → … → s0.")


def test_an_unknown_dependency_comes_with_the_nearest_name() -> None:
    (finding,) = check_graph(graph(**{"create-account": [], "mail": ["create_acount"]}))
    assert finding.message == "There is no step `create_acount` to depend on."
    assert finding.hint == "Did you mean `create-account`?"
    assert finding.path == ("steps", 1, "depends_on", 0)


def test_itself_twice_and_again_are_refused() -> None:
    assert said(graph(a=["a"])) == ["Step `a` depends on itself."]
    assert said(graph(a=[], b=["a", "a"])) == ["Step `b` already depends on `a`."]
    twice = [*graph(a=[]), *graph(a=[])]
    assert said(twice) == ["Another step is already named `a`."]


def test_a_chain_of_ten_thousand_steps_is_checked_quickly() -> None:
    nodes = graph(**{f"s{n}": [f"s{n - 1}"] if n else [] for n in range(10_000)})
    started = time.thread_time()
    assert check_graph(nodes) == []
    ancestry = Ancestry({node.name: [name for name, _ in node.after] for node in nodes})
    assert ancestry.precedes("s0", "s9999")
    assert not ancestry.precedes("s9999", "s0")
    assert time.thread_time() - started < 2


@pytest.mark.parametrize("count", [2_000, in_proof(10_000)])
def test_a_cycle_of_many_steps_with_ten_edges_each_is_found_quickly(count: int) -> None:
    nodes = graph(**{f"s{n}": [f"s{(n - k) % count}" for k in range(1, 11)] for n in range(count)})
    started = time.thread_time()
    assert 1 <= len(check_graph(nodes)) <= 10
    assert time.thread_time() - started < 5


def test_bounds_are_refused_before_anything_is_counted_twice() -> None:
    many = graph(**{f"s{n}": [] for n in range(10_001)})
    assert said(many) == ["10001 steps are more than the 10000 a workflow may have."]
    wide = graph(**{f"s{n}": [f"s{k}" for k in range(n)] for n in range(450)})
    assert said(wide) == ["101025 dependencies are more than the 100000 a workflow may have."]


@drawn(16, 100, st.lists(st.lists(st.integers(0, 11), max_size=4, unique=True), min_size=1, max_size=12))
def test_a_graph_is_accepted_exactly_when_it_can_be_put_in_order(edges: list[list[int]]) -> None:
    size = len(edges)
    after = {n: {other % size for other in others} - {n} for n, others in enumerate(edges)}
    done: set[int] = set()
    while ready := {n for n in after if n not in done and after[n] <= done}:
        done |= ready
    found = check_graph(graph(**{f"s{n}": [f"s{other}" for other in sorted(after[n])] for n in after}))
    assert bool(found) == (len(done) < size)


@pytest.mark.parametrize(("earlier", "later", "expected"), [("a", "d", True), ("b", "c", False), ("d", "a", False)])
def test_ancestors_are_all_that_a_step_waits_for(earlier: str, later: str, expected: bool) -> None:
    ancestry = Ancestry({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
    assert ancestry.precedes(earlier, later) is expected
    assert ancestry.of("d") == ("a", "b", "c")
