"""Actions on all runs that match a filter, the page of jobs, and pauses of queues and of the tenant."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from stepkeep.store.records import FIRST_ID
from stepkeep.store.rows import Job, JobAction, JobState
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)


def test_all_runs_that_match_are_paused_and_resumed_after_a_dry_run(site: Site, reader: Read) -> None:
    mine = [site.start("payment", labels={"all": "yes"}) for _ in range(3)]
    other = site.start("payment")
    for run in (*mine, other):
        site.settle(run)
    person = reader()
    page = person.open("/runs?label=all%3Dyes&workflow=payment")
    page.locator(f"#row-{mine[0]}").get_by_role("checkbox").check()
    bar = page.get_by_role("region", name="Selected runs")
    expect(bar).to_contain_text("1 run selected")
    bar.get_by_role("button", name="Select all 3 that match").click()
    expect(bar).to_contain_text("All 3 runs that match")
    bar.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This will pause all 3 runs that match.")
    dialog.get_by_label("Reason").fill("an audit")
    dialog.get_by_role("button", name="Pause 3 runs").click()
    for run in mine:
        expect(page.locator(f"#row-{run}")).to_contain_text("Paused")
    page.get_by_label("Select all rows shown").check()
    bar.get_by_role("button", name="Resume").click()
    dialog.get_by_role("button", name="Resume 3 runs").click()
    for run in mine:
        expect(page.locator(f"#row-{run}")).to_contain_text("Blocked")
    assert site.run(site.engine.show(other))["run"]["state"] == "blocked"

    page = person.open("/jobs")
    row = page.get_by_role("row", name=re.compile("^Pause"))
    expect(row).to_contain_text("Done")
    expect(row).to_contain_text("3 of 3 runs")
    expect(row).to_contain_text('labels: {"all":"yes"}', ignore_case=True)
    row.get_by_role("button", name="Show").click()
    expect(page.get_by_role("dialog")).to_contain_text("an audit")
    expect(page.get_by_role("dialog").get_by_role("row")).to_have_count(4)


@pytest.mark.proof
def test_a_filter_that_no_run_of_the_action_fits_does_nothing(site: Site, reader: Read) -> None:
    runs = [site.start("echo", {"value": 1}, labels={"none": "yes"}) for _ in range(2)]
    for run in runs:
        site.settle(run)
    page = reader().open("/runs?label=none%3Dyes&state=succeeded")
    page.locator(f"#row-{runs[0]}").get_by_role("checkbox").check()
    bar = page.get_by_role("region", name="Selected runs")
    bar.get_by_role("button", name="Select all 2 that match").click()
    bar.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("None of the states in the filter fits: already ended, or quarantined.")
    dialog.get_by_role("button", name="Nothing to do").click()
    expect(dialog).to_have_count(0)


@pytest.mark.proof
def test_a_job_under_way_is_stopped_on_its_page(site: Site, reader: Read) -> None:
    run = site.start("payment")
    now = site.run(site.engine.store.now())
    # Another worker holds the job for an hour.
    job = Job(
        tenant=site.engine.tenant,
        id=f"f{FIRST_ID[1:]}",
        action=JobAction.CANCEL,
        state=JobState.RUNNING,
        options=b'{"where": {"workflow": "payment"}, "reason": ""}',
        created_at=now,
        created_by="ann",
        vouched_by=None,
        api_key=None,
        idempotency_key=None,
        digest=b"",
        seq=0,
        lease_until=now + 3_600_000_000,
    )
    assert site.run(site.engine.store.jobs.add(job, [run]))
    page = reader().open("/jobs")
    row = page.get_by_role("row", name=re.compile("^Cancel Running"))
    expect(row).to_contain_text("0 of 1 run")
    row.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the job").click()
    expect(page.get_by_role("row", name=re.compile("^Cancel Stopped"))).to_be_visible()
    assert site.run(site.engine.jobs.show(job.id))["state"] == "stopped"
    assert site.settle(run) == "blocked"


@pytest.mark.proof
def test_claims_of_a_queue_and_of_the_tenant_are_paused_and_resumed(site: Site, reader: Read) -> None:
    page = reader().open("/workers")
    page.get_by_role("button", name="Pause claims").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What").select_option(label="Queue printers")
    dialog.get_by_label("Reason").fill("out of paper")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    row = page.get_by_role("row", name=re.compile("Queue printers"))
    expect(row).to_contain_text("out of paper")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Pause claims").click()
    dialog.get_by_role("button", name="Pause", exact=True).click()
    row = page.get_by_role("row", name=re.compile("The whole tenant"))
    expect(row).to_be_visible()
    [pause] = site.run(site.engine.pauses.list())["pauses"]
    assert (pause["scope"], pause["by"]) == ("tenant", "ann")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_have_count(0)
    assert site.run(site.engine.pauses.list())["pauses"] == []
    run = site.start("echo", {"value": 1})
    assert site.settle(run) == "succeeded"


@pytest.mark.proof
def test_runs_beyond_a_limit_wait_for_a_slot_and_say_so(site: Site, reader: Read) -> None:
    person = reader()
    page = person.open("/workers")
    page.get_by_role("button", name="Limit runs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Workflow").fill("payment")
    dialog.get_by_label("Runs at once").fill("1")
    dialog.get_by_role("button", name="Set").click()
    row = page.get_by_role("row", name=re.compile("^payment"))
    expect(row).to_be_visible()
    first, second = site.start("payment"), site.start("payment")
    expect(row).to_contain_text(re.compile("payment\\s*1\\s*1\\s*1"))
    waiting = person.open(f"/runs/{second}")
    expect(waiting.locator(".why")).to_contain_text("slot")
    page = person.open("/workers")
    row.get_by_role("button", name="End the limit").click()
    assert site.settle(second) == "blocked"
    assert site.settle(first) == "blocked"
