"""The dashboard and the alert rules name metrics and labels that a real scrape has, and every alert is explained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

import stepkeep as sk
from stepkeep.metrics.families import METRICS
from tests.api.stage import handlers, on
from tests.databases import migrated_file
from tests.metrics.scrape import Scrape
from tests.workbench import SECOND

ROOT = Path(__file__).parents[2]
BOARD = json.loads((ROOT / "deploy" / "grafana" / "stepkeep.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "stepkeep-alerts.yaml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS = [rule["expr"] for rule in ALERTS]
EXPRESSIONS += [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]

NAME = re.compile(r"\b((?:stepkeep|runs|steps|step|worker)_[a-z_]+)\b(?:\{([^}]*)\})?")


async def test_every_name_in_them_is_in_a_real_scrape_with_the_labels_that_are_asked_for(tmp_path: Path) -> None:
    shown: list[Scrape] = []

    async with on(migrated_file(tmp_path / "s.db")) as stage:
        engine = stage.engine
        await engine.sinks.add("wire", "host", events=["transitions"])
        waiting = sk.Workflow("waiting")
        waiting.step("nobody", "handler.of.nobody")
        greeted = sk.Workflow("greeted")
        greeted.step("greet", "api.greet")
        for flow in (waiting, greeted):
            await engine.publish(flow)
        engine.registry = handlers()
        worker = await engine.start_worker(concurrency=2)
        stage.app.service.metrics._workers = lambda: [worker._worker.vitals()]
        await engine.start(waiting)
        done = await engine.start(greeted)
        await engine.wait(done.run_id)
        engine.store.clock_offset += 30 * SECOND
        engine.transactor.measures.conflicted(next(iter(engine.transactor.measures.commits)))
        engine.transactor.measures.fell_back(next(iter(engine.transactor.measures.commits)))
        async with stage.client(await stage.key(tenant="default")) as client:
            await client.get("/status")
            shown.append(Scrape((await client.get("/metrics")).text))
    [scrape] = shown
    asked = 0
    for expression in EXPRESSIONS:
        found = NAME.findall(expression)
        assert found or "up{" in expression, expression
        for name, given in found:
            asked += 1
            assert name in scrape.names, f"{name} of {expression}"
            known = METRICS.get(name) or METRICS[name.removesuffix("_bucket")]
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", given)) - {"le"}
            assert labels <= {*known.labels, "instance", "job"}, expression
            for by in re.findall(r"by \(([^)]*)\)", expression):
                allowed = {one for metric in METRICS.values() for one in metric.labels} | {"le", "instance"}
                assert {one.strip() for one in by.split(",")} <= allowed, expression
    assert asked > 30


def test_every_alert_is_explained_and_no_other() -> None:
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(Stepkeep\w+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in explained] == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_panels_have_places_of_their_own() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in BOARD["panels"]})
