"""A page that stays open on a busy system does not grow: an hour of events, compressed, with the heap measured."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.sync_api import CDPSession, Page, expect

from stepkeep.operations.definitions.publish import find_plan
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)

AT_ONCE = 20
SLACK_BYTES = 2_000_000
"""What the browser may keep beyond a tenth: code that it has compiled meanwhile, buffers of requests."""
SLACK_NODES = 400
MINUTES = 20
RUNS = 12_000
"""36,000 events."""
VISITS = 2 * SLACK_NODES
"""An element that each visit leaves behind is found."""


class Meter:
    """What a page holds after garbage was collected."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.session: CDPSession = page.context.new_cdp_session(page)
        self.session.send("Performance.enable")

    def read(self) -> dict[str, float]:
        for _ in range(3):
            self.session.send("HeapProfiler.collectGarbage")
        told: dict[str, Any] = self.session.send("Performance.getMetrics")
        found = {one["name"]: one["value"] for one in told["metrics"]}
        return {name: found[name] for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}


async def _busy(site: Site, runs: int) -> None:
    """Start so many runs and let the worker end them; each makes three entries of the journal."""
    plan = await find_plan(site.engine.transactor, "echo", None, tenant=site.engine.tenant)

    async def some(count: int) -> None:
        for number in range(count):
            started = await site.engine.start(plan, {"value": number})
            await site.engine.wait(started.run_id, seconds=60)

    await asyncio.gather(*(some(runs // AT_ONCE) for _ in range(AT_ONCE)))


def _let_go(page: Page, site: Site, runs: int) -> None:
    """Make it busy, and wait until the page shows the last run."""
    asyncio.run_coroutine_threadsafe(_busy(site, runs), site._loop).result(60 * MINUTES)
    last = site.start("echo", {"value": "last"})
    expect(page.locator(f"#row-{last}")).to_contain_text("Succeeded")


@pytest.mark.proof
def test_the_live_table_holds_no_more_after_an_hour_of_events(site: Site, reader: Read) -> None:
    page = reader().page
    _let_go(page, site, RUNS // 10)
    meter = Meter(page)
    before = meter.read()
    _let_go(page, site, RUNS)
    after = meter.read()
    assert after["JSHeapUsedSize"] <= before["JSHeapUsedSize"] * 1.1 + SLACK_BYTES, (before, after)
    assert after["Nodes"] <= before["Nodes"] + SLACK_NODES, (before, after)
    assert after["JSEventListeners"] <= before["JSEventListeners"] + SLACK_NODES, (before, after)


@pytest.mark.proof
def test_reloads_of_every_page_leave_nothing_behind(site: Site, reader: Read) -> None:
    """Pages are opened and left again; then what is there is what was there before."""
    run = site.furnish()
    page = reader().page
    paths = ("/runs", f"/runs/{run}", "/approvals?show=all", "/overview", "/workflows/order", "/workers", "/audit")
    visit = """async ([paths, count]) => {
      const base = document.querySelector('script[type=module]').src.replace(/app\\.js$/, '');
      const { go } = await import(base + "router.js");
      for (let at = 0; at < count; at += 1) {
        const [path, query] = paths[at % paths.length].split("?");
        go(path, Object.fromEntries(new URLSearchParams(query ?? "")));
        await new Promise((done) => setTimeout(done, 20));
      }
      go("/triggers");
      await new Promise((done) => setTimeout(done, 500));
    }"""
    page.evaluate(visit, [paths, 3 * len(paths)])
    meter = Meter(page)
    before = meter.read()
    page.evaluate(visit, [paths, VISITS])
    after = meter.read()
    assert after["JSHeapUsedSize"] <= before["JSHeapUsedSize"] * 1.1 + SLACK_BYTES, (before, after)
    assert after["Nodes"] <= before["Nodes"] + SLACK_NODES, (before, after)
