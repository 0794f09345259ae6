"""Pages that count: errors in groups, the overview and the workflows. Every number leads to the runs that it counts."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)


def _shout(site: Site, *numbers: int) -> list[str]:
    runs = [site.start("shout", {"text": f"order {number} has no customer"}) for number in numbers]
    for run in runs:
        site.settle(run)
    return runs


def test_errors_that_differ_by_numbers_are_one_row_that_leads_to_its_runs_and_retries_them(
    site: Site, reader: Read
) -> None:
    runs = _shout(site, 11, 22, 33)
    page = reader().open("/errors")
    row = page.get_by_role("row").filter(has_text="order # has no customer")
    expect(row).to_contain_text("cry")
    expect(row).to_contain_text("unknown")
    expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"Runs stopped by .*: \d+"))
    row.get_by_role("button", name="Retry all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What finished is adopted")
    expect(dialog).to_contain_text("This will retry all")
    dialog.get_by_role("button", name="Cancel").click()
    row.get_by_role("link", name=re.compile(r"^\d+$")).click()
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    for run in runs:
        expect(page.locator(f"#row-{run}")).to_be_visible()
    expect(page.locator(".chips")).to_contain_text("has no customer")


def test_a_job_retries_what_an_error_stopped(site: Site, reader: Read) -> None:
    [run] = _shout(site, 44)
    page = reader().open("/errors")
    row = page.get_by_role("row").filter(has_text="order # has no customer")
    row.get_by_role("button", name="Retry all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile("^Retry [0-9]+ run")).click()
    expect(page.locator(".toast")).to_contain_text("started again")
    told = site.run(site.engine.show(run))
    assert told.run.continued_by, "the job retried it"


def test_the_overview_looks_at_the_window_that_was_chosen_by_workflow(site: Site, reader: Read) -> None:
    _shout(site, 55)
    page = reader().open("/overview")
    table = page.get_by_role("region", name="By workflow")
    row = table.get_by_role("row").filter(has=page.get_by_role("link", name="shout", exact=True))
    expect(row).to_contain_text("100 %")
    page.get_by_label("Window").select_option("1h")
    expect(page).to_have_url(re.compile("window=1h"))
    expect(page.locator(".tiles")).to_contain_text("last hour")
    row.get_by_role("link", name=re.compile(r"^\d+$")).last.click()
    expect(page.locator(".chips")).to_contain_text("Workflow: shout")
    expect(page.get_by_role("row").nth(1)).to_contain_text("Failed")


def test_the_list_of_workflows_tells_how_their_runs_went_and_when_the_next_one_starts(site: Site, reader: Read) -> None:
    _shout(site, 66)
    page = reader().open("/workflows")
    rows = page.get_by_role("region", name="Workflows").get_by_role("row")
    shout = rows.filter(has=page.get_by_role("link", name="shout", exact=True))
    expect(shout).to_contain_text("100 %")
    expect(shout.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"Runs of shout: \d+, \d+ failed"))
    expect(rows.filter(has=page.get_by_role("link", name="nightly", exact=True))).to_contain_text(re.compile(r"in \d+"))


def test_dead_events_are_a_problem_of_the_overview(site: Site, reader: Read) -> None:
    site.furnish()
    page = reader().open("/overview")
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text(re.compile(r"sink shop: \d+ dead event"))
    problems.get_by_role("link", name="sink shop").click()
    expect(page.get_by_role("heading", name="Outbox", level=1)).to_be_visible()
