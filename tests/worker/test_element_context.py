"""What the handler of an element is told: a name, an idempotency key and log lines of its own."""

from __future__ import annotations

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry


def test_every_element_has_an_idempotency_key_of_its_own_and_so_has_its_undo(database_url: str) -> None:
    keys: list[str] = []

    def keyed_element(ctx: sk.Context, n: int) -> int:
        keys.append(ctx.idempotency_key)
        if n == 2:
            raise sk.fail("two is bad")
        return n

    def undo_keyed_element(ctx: sk.Context) -> None:
        keys.append(ctx.idempotency_key)

    registry = Registry()
    for function in (keyed_element, undo_keyed_element):
        registry.register(HandlerSpec(name=function.__name__, function=function))
    flow = sk.Workflow("keys", on_failure="compensate", registry=registry)
    flow.step(
        "each",
        "keyed_element",
        inputs={"n": flow.item},
        map={"over": flow.input["items"], "in_flight": 1},
        undo="undo_keyed_element",
    )
    with sk.Engine(database_url, registry=registry) as engine:
        result = engine.run(flow, {"items": [0, 1, 2]})
        assert result.state == "rolled_back"
        names = ["each[0]", "each[1]", "each[2]", "each[1]:compensate", "each[0]:compensate"]
        assert keys == [f"{result.id}:{name}" for name in names]
