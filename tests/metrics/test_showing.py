"""Where metrics are shown: at the service with the right key, on a port of their own, and by a worker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from stepkeep.api.access import ROUTES
from stepkeep.metrics.families import METRICS
from tests.api.stage import HELLO, TENANT, on, told
from tests.databases import migrated_file
from tests.metrics.scrape import Scrape
from tests.workbench import wait_until


async def test_requests_are_counted_by_route_template_and_status(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO, tenant="default")
        async with stage.client(await stage.key(tenant="default")) as client:
            for _ in range(3):
                assert (await client.post("/runs", json={"workflow": "hello"})).status_code == 201
            await client.get("/runs/01a1e12c-57d6-75bf-abba-e99e88c4e41f")
            await client.get("/nothing/at-all-01a1e12c")
            await client.get("/slots")
            await client.request("BREW", "/runs")
            answer = await client.get("/metrics")
            shown = Scrape(answer.text)
        assert answer.headers["content-type"].startswith("text/plain; version=")
        count = "stepkeep_http_requests_total"
        assert shown(count, method="POST", route="/runs", status="201") == 3
        assert shown(count, method="GET", route="/runs/{run_id}", status="404") == 1
        assert shown(count, method="GET", route="(none)", status="404") == 1
        assert shown(count, method="GET", route="/slots", status="200") == 1
        assert shown(count, method="(other)", route="/runs", status="405") == 1
        templates = {route.split(" ")[1] for route in ROUTES} | {"(none)"}
        assert shown.labels(count, "route") <= templates
        assert shown("stepkeep_http_request_seconds_count", route="/runs") == 4
        assert shown("stepkeep_http_in_flight") == 1
        assert shown("runs_total", status="PENDING") == 3
        assert shown("stepkeep_runs", tenant="default", state="queued") == 3
        assert "01a1e12c" not in answer.text


async def test_metrics_are_for_keys_of_the_operators_with_their_scope(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.client(await stage.key(tenant=TENANT)) as client:
            assert told(await client.get("/metrics"), 403, "not_allowed")["rule"] == "tenant"
        async with stage.client(await stage.key("read", "admin", tenant="default")) as client:
            assert told(await client.get("/metrics"), 403, "not_allowed")["rule"] == "scope"
        async with stage.client(await stage.key("metrics", tenant="default")) as client:
            accept = "application/openmetrics-text; version=1.0.0"
            answer = await client.get("/metrics", headers={"Accept": accept})
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert answer.text.endswith("# EOF\n")
            told(await client.get("/runs"), 403, "not_allowed")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A worker process on SQLite with a port of metrics, and the address of that port."""
    url = migrated_file(tmp_path / "stepkeep.db")
    child = subprocess.Popen(
        [sys.executable, "-m", "stepkeep", "worker", "--db", url, "--name", "billing", "--metrics-port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    try:
        while not (found := re.search(r"metrics are on (\S+)/metrics", line := child.stderr.readline())):
            assert line, "the worker ended"
        yield child, found[1]
    finally:
        child.kill()
        child.communicate()


def test_a_worker_shows_its_metrics_and_its_health_on_a_port(worker: tuple[subprocess.Popen[str], str]) -> None:
    child, address = worker
    with httpx2.Client(base_url=address, timeout=20) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        healthy = client.get("/healthz").json()
        assert healthy["worker"].startswith("billing")
        assert healthy["store_up"] is True
        assert healthy["loop_lag_seconds"] >= 0
        assert healthy["answered_seconds_ago"] >= 0
        shown = Scrape(client.get("/metrics").text)
        assert shown("stepkeep_worker_slots", worker="billing", use="free") == 1000
        assert shown("stepkeep_worker_store_up", worker="billing") == 1
        assert shown("stepkeep_store_up") == 1
        assert shown("process_resident_memory_bytes") > 1e6
        assert "runs_total" in shown.names
        assert client.get("/runs").status_code == 404
        assert client.post("/metrics").status_code == 405
        child.terminate()
    assert child.wait(20) == 0


def test_every_name_has_one_row_and_the_page_has_every_row() -> None:
    from tests.docs.test_pages import load

    names = load("metric_names")
    assert names.PAGE.read_text(encoding="utf-8") == names.page(), "run python scripts/metric_names.py"
    for one in METRICS.values():
        assert one.kind != "counter" or one.name.endswith("_total"), one
        assert one.help.endswith("."), one
        assert not {"run", "run_id", "path", "key"} & set(one.labels), one
