"""The page of triggers: schedules in words with their zone, adding one, catching up with a range."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)

WORDS = {
    "30 2 * * *": "every day at 02:30",
    "@hourly": "every hour",
    "5 * * * *": "every hour, at minute 5",
    "*/15 * * * *": "every 15 minutes",
    "* * * * *": "every minute",
    "0 9 * * 1-5": "Monday to Friday at 09:00",
    "15 18 * * 0": "every Sunday at 18:15",
    "0 0 1 * *": "on day 1 of each month at 00:00",
    "0 0 1 1 *": "0 0 1 1 *",
    "0 9-17 * * *": "0 9-17 * * *",
    "1,2 3 * * *": "1,2 3 * * *",
    "soon": "soon",
}


def test_schedules_that_have_simple_words_are_told_in_them(reader: Read) -> None:
    page = reader().page
    base = page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')")
    told = page.evaluate(
        """async ({ base, all }) => {
          const { cronText } = await import(base + "components/schedule.js");
          return all.map(cronText);
        }""",
        {"base": base, "all": list(WORDS)},
    )
    assert dict(zip(WORDS, told, strict=True)) == WORDS


def test_a_trigger_tells_its_schedule_and_zone_and_is_added_and_caught_up_with(site: Site, reader: Read) -> None:
    page = reader().open("/triggers")
    night = page.get_by_role("row", name="nightly/night")
    expect(night).to_contain_text("every day at 02:30")
    expect(night).to_contain_text("Europe/Zurich")
    night.get_by_role("button", name="Firings").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("region", name="Next firings").get_by_role("row")).to_have_count(6)
    expect(dialog).to_contain_text("02:30")
    dialog.get_by_role("button", name="Close").last.click()

    page.get_by_role("button", name="Add a trigger").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("quarterly")
    dialog.get_by_label("Workflow").select_option("echo")
    dialog.get_by_label("Schedule").fill("*/15 * * * *")
    expect(dialog.get_by_text("every 15 minutes")).to_be_visible()
    dialog.get_by_label("Zone").fill("Europe/Zurich")
    dialog.get_by_role("button", name="Add").click()
    row = page.get_by_role("row", name=re.compile("quarterly"))
    expect(row).to_contain_text("added by ann")

    row.get_by_role("button", name="Backfill").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Look").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Give both ends")
    dialog.get_by_label("From").fill("2026-01-01T00:00")
    dialog.get_by_label("To").fill("2026-01-01T01:00")
    dialog.get_by_role("button", name="Look").click()
    expect(dialog).to_contain_text(re.compile("4 moments without a run|5 moments without a run"))
    dialog.get_by_role("button", name="Look").click()
    expect(dialog).to_have_count(0)
    found = [one for one in site.run(site.engine.jobs.list()).jobs if one.action == "backfill"]
    assert [one.trigger for one in found] == ["quarterly"]
    site.run(site.engine.triggers.remove("quarterly"))
