"""Pattern 5 of seed 000: a run emits an event, the relay hands it in, and a trigger starts the next run, once."""

from __future__ import annotations

from pathlib import Path

import stepkeep as sk
from tests.workbench import wait_until

REGISTRY = sk.Registry()


@sk.step(registry=REGISTRY)
def rate(ctx: sk.Context) -> dict[str, float]:
    ctx.emit("risk.rated", {"riskScore": 0.9})
    return {"riskScore": 0.9}


@sk.step(registry=REGISTRY)
def act(ctx: sk.Context) -> str:
    return "acted"


def test_an_emitted_event_starts_the_next_workflow_with_the_same_correlation(tmp_path: Path) -> None:
    rating = sk.Workflow("rating", registry=REGISTRY)
    rating.step("rate", rate)
    acting = sk.Workflow("acting", registry=REGISTRY, triggers=[{"event": "risk.*", "condition": "riskScore >= 0.7"}])
    acting.step("act", act)
    with sk.open(f"sqlite:///{tmp_path}/s.db", registry=REGISTRY) as engine:
        engine.publish(acting)
        with engine.start_worker():
            first = engine.start(rating, correlation_id="c-1").run_id
            engine.wait(first)
            wait_until(lambda: bool(engine.triggers.show("acting/event")["firings"]))
            [firing] = engine.triggers.show("acting/event")["firings"]
            engine.wait(firing["run_id"])
        shown = engine.show(firing["run_id"])
    assert (firing["state"], firing["source"], firing["depth"]) == ("started", first, 1)
    assert (shown["run"]["state"], shown["run"]["correlation_id"]) == ("succeeded", "c-1")
