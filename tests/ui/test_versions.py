"""Live runs go on under another version, from the page of the run and from that of the workflow."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from stepkeep.definition.native.reader import load_text
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)

MOVING = """
workflow: moving
version: {version}
timeout: 2h
steps:
  - {{ name: first, uses: ui.quick, timeout: 10s, effect: read }}
  - {{ name: paid, wait: {{ event: paid, deadline: 1h }} }}
  {more}
"""
MORE = "- { name: thanks, uses: ui.quick, timeout: 10s, effect: read }"


@pytest.mark.proof
def test_live_runs_are_migrated_after_a_preview_of_what_that_means(site: Site, reader: Read) -> None:
    site.run(site.engine.publish(load_text(MOVING.format(version=1, more=""), "moving.yaml")))
    runs = [site.start("moving") for _ in range(2)]
    for run in runs:
        site.settle(run)
    site.run(site.engine.publish(load_text(MOVING.format(version=2, more=MORE), "moving.yaml")))
    person = reader()
    page = person.open(f"/runs/{runs[0]}")
    page.get_by_role("button", name="Migrate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Adopted as it is")
    expect(dialog).to_contain_text("thanks")
    dialog.get_by_label("Reason").fill("thank them")
    dialog.get_by_role("button", name="Migrate").click()
    expect(page.locator(".meta")).to_contain_text("Version 2")
    assert site.run(site.engine.show(runs[0]))["run"]["state"] == "cancelled"

    page = person.open("/workflows/moving?tab=versions")
    page.get_by_role("button", name="Migrate live runs").click()
    expect(dialog).to_contain_text("1 can be migrated")
    dialog.get_by_role("button", name="Migrate").click()
    expect(page.locator(".toast")).to_contain_text("A job migrates 1 run.")
    page.locator(".toast").get_by_role("link", name="Show the jobs").click()
    expect(page.get_by_role("row", name="Migrate")).to_contain_text("1 of 1 run")
    expect(page.get_by_role("row", name="Migrate")).to_contain_text("Done")
    assert site.run(site.engine.show(runs[1]))["run"]["state"] == "cancelled"
