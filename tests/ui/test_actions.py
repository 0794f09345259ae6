"""What people do on the pages beyond the tour: holds, completions by hand, quarantine, the past of a run, triggers,
the outbox, policies, filters."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)


def test_a_hold_is_decided_on_the_page_of_its_run(site: Site, reader: Read) -> None:
    run = site.start("held")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    expect(page.locator(".why")).to_contain_text("charge")
    page.locator(".why").get_by_role("button", name="Skip or fail").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Decision")).to_have_value("skip")
    dialog.get_by_label("Reason").fill("paid in cash")
    dialog.get_by_role("button", name="Decide").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    assert site.run(site.engine.show(run, step="charge"))["step"]["state"] == "skipped"


@pytest.mark.proof
def test_a_step_that_waits_for_its_next_attempt_is_completed_by_a_person(site: Site, reader: Read) -> None:
    run = site.start("stuck")
    page = reader().open(f"/runs/{run}")
    page.locator(".why").get_by_role("button", name="Retry now or decide").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Output")).to_be_hidden()
    dialog.get_by_label("Decision").select_option("complete")
    dialog.get_by_label("Output").fill('{"rows": 3}')
    dialog.get_by_role("button", name="Decide").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Give a reason")
    dialog.get_by_label("Reason").fill("fetched by hand")
    dialog.get_by_role("button", name="Decide").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    step = site.run(site.engine.show(run, step="fetch"))["step"]
    assert (step["output"], step["record"]["by"], step["record"]["reason"]) == ({"rows": 3}, "ann", "fetched by hand")


@pytest.mark.proof
def test_a_wait_is_skipped_from_the_panel_of_its_step(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader().open(f"/runs/{run}?step=paid")
    page.get_by_role("complementary", name="Step").get_by_role("button", name="Decide").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Decision").locator("option").count() == 3, "a wait is not retried"
    dialog.get_by_label("Reason").fill("paid in cash")
    dialog.get_by_role("button", name="Decide").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    assert site.run(site.engine.show(run, step="paid"))["step"]["state"] == "skipped"


@pytest.mark.proof
def test_a_step_is_completed_by_hand_with_a_replaced_token(site: Site, reader: Read) -> None:
    run = site.start("by-hand")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    page.locator(".why").get_by_role("button", name="Complete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Completion token").fill("guessed")
    dialog.get_by_role("button", name="Complete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("token")
    dialog.get_by_role("button", name="Replace a lost token").click()
    expect(dialog.get_by_label("Completion token")).not_to_have_value("guessed")
    dialog.get_by_label("Output").fill('{"boxes": 2}')
    dialog.get_by_role("button", name="Complete", exact=True).click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    assert site.run(site.engine.show(run, step="pack"))["step"]["output"] == {"boxes": 2}


@pytest.mark.proof
def test_a_run_is_quarantined_from_the_palette_and_released(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    expect(page.locator(".why")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("Find a run")).fill("quarantine")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Quarantine the run")
    dialog.get_by_role("button", name="Quarantine").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Give a reason")
    dialog.get_by_label("Reason").fill("looked at")
    dialog.get_by_role("button", name="Quarantine").click()
    expect(page.locator(".why")).to_contain_text("quarantine")
    page.locator(".why").get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("seen")
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(page.locator(".why")).to_contain_text("paid")


@pytest.mark.proof
def test_the_slider_shows_a_run_as_it_stood(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader().open(f"/runs/{run}?step=check-address")
    panel = page.get_by_role("complementary", name="Step")
    expect(panel.locator(".badge").first).to_contain_text("Succeeded")
    slider = page.get_by_label("Entry of the journal")
    last = int(slider.get_attribute("max") or 0)
    assert last > 3
    slider.fill("1")
    expect(page.locator(".past")).to_contain_text(f"after entry 1 of {last}")
    expect(panel.locator(".badge").first).to_contain_text("Ready")
    expect(page.get_by_label(re.compile("^sign-off: Pending"))).to_be_visible()
    page.locator("h1").first.click()
    page.keyboard.press("]")
    expect(page.locator(".past")).to_contain_text(f"after entry 2 of {last}")
    page.locator(".past").get_by_role("button", name="Now").click()
    expect(panel.locator(".badge").first).to_contain_text("Succeeded")
    expect(page.get_by_label(re.compile("^sign-off: Awaiting approval"))).to_be_visible()


def test_a_trigger_is_paused_resumed_and_fired(site: Site, reader: Read) -> None:
    page = reader().open("/triggers")
    row = page.get_by_role("row", name="nightly/night")
    row.get_by_role("button", name="Firings").click()
    expect(page.get_by_role("region", name="Next firings").get_by_role("row").nth(1)).to_contain_text("02:30")
    page.keyboard.press("Escape")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("Active")
    row.get_by_role("button", name="Fire now").click()
    page.get_by_role("dialog").get_by_role("button", name="Fire", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    found = site.run(site.engine.runs(workflow="nightly"))["runs"]
    assert len(found) == 1


@pytest.mark.proof
def test_a_dead_event_is_delivered_again_and_a_policy_is_published(site: Site, reader: Read) -> None:
    site.furnish()
    person = reader()
    page = person.open("/outbox")
    row = page.get_by_role("region", name="Sinks").get_by_role("row", name=re.compile("shop"))
    row.get_by_role("button", name="Deliver again").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the address was opened")
    page.get_by_role("dialog").get_by_role("button", name="Deliver").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    actions = site.run(site.engine.outbox.history())["actions"]
    assert "the address was opened" in [one["reason"] for one in actions]
    page = person.open("/policies")
    page.get_by_role("button", name="Publish a policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Policy").fill('{"policy": "p", "rules": 3}')
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("alert")).to_contain_text("rules")
    dialog.get_by_label("Policy").fill('{"policy": "second", "rules": [{"name": "all", "then": "allow"}]}')
    dialog.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("region", name="Revisions")).to_contain_text("2")
    page.get_by_role("row", name=re.compile("^2")).get_by_role("button", name="Show").click()
    expect(page.get_by_role("dialog", name="Revision 2")).to_contain_text("second")


@pytest.mark.proof
def test_the_filter_dialog_writes_the_address_and_its_chips_take_it_back(site: Site, reader: Read) -> None:
    wanted = site.start("payment", labels={"team": "red"}, business_key="filter-1")
    other = site.start("payment", labels={"team": "blue"})
    for run in (wanted, other):
        site.settle(run)
    page = reader().page
    expect(page.locator(f"#row-{other}")).to_be_visible()
    page.keyboard.press("f")
    dialog = page.get_by_role("dialog", name="Filter runs")
    dialog.get_by_label("Workflow").fill("payment")
    dialog.get_by_label("Labels").fill("team=red")
    dialog.get_by_label("Blocked").check()
    dialog.get_by_label("Started at or after").fill("2020-01-01T00:00")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.locator(f"#row-{wanted}")).to_be_visible()
    expect(page.locator(f"#row-{other}")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"workflow=payment.*label=team%3Dred.*since=20"))
    page.get_by_role("button", name="Remove the filter Label").click()
    expect(page.locator(f"#row-{other}")).to_be_visible()
    page.get_by_label("Search runs").fill("nothing like this")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.get_by_role("button", name="show all runs").click()
    expect(page.locator(f"#row-{wanted}")).to_be_visible()
    assert "?" not in page.url


def test_a_run_is_paused_and_resumed(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    expect(page.locator(".why")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("the shop is closed")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".head .badge").first).to_contain_text("Paused")
    expect(page.locator(".why")).to_contain_text("paused by ann")
    expect(page.locator(".why")).to_contain_text("the shop is closed")
    page.locator(".why").get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".head .badge").first).to_contain_text("Blocked")


@pytest.mark.proof
def test_a_failed_run_goes_on_after_a_preview_of_what_is_adopted(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    site.run(site.engine.approve(run, by="ann"))
    assert site.settle(run) == "rolled_back"
    page = reader().open(f"/runs/{run}")
    page.get_by_role("button", name="Run again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("How")).to_have_value("retry")
    expect(dialog.get_by_role("listitem").filter(has_text="check-address")).to_contain_text("adopted")
    expect(dialog.get_by_role("listitem").first).to_contain_text("runs againreserve")
    dialog.get_by_label("How").select_option("fork")
    dialog.get_by_label("Step").select_option("check-address")
    expect(dialog.get_by_role("listitem").filter(has_text="check-address")).to_contain_text("runs again")
    dialog.get_by_label("Input").fill('{"order": "B-2"}')
    dialog.get_by_role("button", name="Start").click()
    expect(page).not_to_have_url(re.compile(run))
    expect(page.locator(".why")).to_contain_text("sign-off waits for approval")
    view = site.run(site.engine.show(page.url.partition("/ui/runs/")[2].partition("?")[0]))
    assert view["run"]["input"] == {"order": "B-2"}


@pytest.mark.proof
def test_the_elements_of_a_map_are_steps_of_the_graph_and_of_the_table(site: Site, reader: Read) -> None:
    run = site.start("mapped", {"items": ["a", "b", "c", "d"]})
    assert site.settle(run) == "succeeded"
    person = reader()
    page = person.open(f"/runs/{run}")
    names = [step["name"] for step in site.run(site.engine.show(run))["steps"]]
    assert len(names) == 6
    expect(page.locator(".graph .node")).to_have_count(6)
    expect(page.locator(".graph .edge")).to_have_count(8)
    expect(page.locator(".graph")).to_contain_text("map · 4 of 4")
    page.get_by_role("tab", name="Steps (6)").click()
    for name in names:
        expect(page.get_by_role("region", name="Steps").get_by_role("button", name=name, exact=True)).to_be_visible()
    many = site.start("mapped", {"items": list(range(60))})
    assert site.settle(many) == "succeeded"
    page = person.open(f"/runs/{many}")
    expect(page.locator(".graph .node")).to_have_count(2)
    page.locator(".graph .node").first.click()
    panel = page.get_by_role("complementary", name="Step")
    expect(panel).to_contain_text("60 succeeded")
    panel.get_by_role("button", name="Show in the graph").click()
    expect(page.locator(".graph .node")).to_have_count(42)
    panel.get_by_role("button", name="Fold in the graph").click()
    expect(page.locator(".graph .node")).to_have_count(2)
    page = person.open("/workflows/mapped")
    expect(page.locator(".graph .node")).to_have_count(2)
    for tab in ("Steps (2)", "Failure paths", "Definition"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator("main .skeleton")).to_have_count(0)


@pytest.mark.proof
def test_the_tree_of_child_runs_leads_down_and_up(site: Site, reader: Read) -> None:
    run = site.start("parent")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    tree = page.get_by_role("region", name="Child runs")
    expect(tree).to_contain_text("pay: payment v1")
    expect(tree).to_contain_text("Blocked")
    tree.get_by_role("link").click()
    expect(page.get_by_role("heading", name="payment", level=1)).to_be_visible()
    page.locator(".why").get_by_role("button", name="Send the message").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    page.locator(".meta").get_by_role("link", name=re.compile(run[:8])).click()
    expect(page.get_by_role("heading", name="parent", level=1)).to_be_visible()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    expect(tree).to_contain_text("Succeeded")
    page.get_by_role("tab", name="Certificate").click()
    expect(page.get_by_text("The runs below it conform, and the journals agree")).to_be_visible()
    expect(page.get_by_role("region", name="Runs below").get_by_role("row")).to_have_count(2)


@pytest.mark.proof
def test_the_preview_of_a_rollback_names_the_runs_below(site: Site, reader: Read) -> None:
    run = site.start("family")
    site.settle(run)
    [child] = site.run(site.engine.show(run))["run"]["children"]
    page = reader().open(f"/runs/{run}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Undo first what the run did").check()
    undone = dialog.get_by_role("listitem").filter(has_text="reserve")
    expect(undone.get_by_role("link", name=re.compile(child["run_id"][:8]))).to_be_visible()
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".head .badge").first).to_contain_text(re.compile("Rolled back|Failed|Cancelled"))
    step = site.run(site.engine.show(child["run_id"], step="undo:reserve"))["step"]
    assert step["state"] == "succeeded"


@pytest.mark.proof
def test_a_choice_shows_its_cases_and_the_one_that_was_taken(site: Site, reader: Read) -> None:
    run = site.start("choice", {"amount": 7})
    assert site.settle(run) == "succeeded"
    person = reader()
    page = person.open(f"/runs/{run}?step=pay")
    expect(page.get_by_role("complementary", name="Step")).to_contain_text(re.compile("Case\\s*card"))
    for workflow, does in (
        ("choice", "one of: transfer, card"),
        ("mapped", "map of python ui.echo"),
        ("parent", "runs payment v1"),
    ):
        page = person.open(f"/workflows/{workflow}?tab=steps")
        expect(page.get_by_role("table")).to_contain_text(does)
