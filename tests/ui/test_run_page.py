"""The page of a run: why it waits and the button that moves it, every attempt, the verified journal, dialects."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.damage import damage
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)


def test_a_gate_is_explained_approved_and_the_failure_rolled_back_by_mouse(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    why = page.locator(".why")
    expect(why).to_contain_text("sign-off waits for approval")
    why.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_label("Comment").fill("checked")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".head .badge").first).to_contain_text(re.compile("Rolled back|Failed"))
    expect(page.locator(".why")).to_contain_text("the card was declined")
    expect(page.locator(".graph .node[data-state=failed]")).to_have_attribute("aria-label", re.compile("^ship"))
    expect(page.get_by_label("Undo of reserve: Succeeded")).to_be_visible()
    assert site.run(site.engine.show(run, step="sign-off"))["step"]["record"]["comment"] == "checked"


@pytest.mark.proof
def test_the_same_tour_by_keyboard_alone(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    expect(page.locator(".why")).to_contain_text("waits for approval")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog").get_by_label("Comment")).to_be_focused()
    page.keyboard.type("by keys")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("dialog").get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".why")).to_contain_text("the card was declined")
    page.keyboard.press("j")
    expect(page.get_by_role("complementary", name="Step")).to_contain_text("reserve")
    page.keyboard.press("4")
    expect(page.get_by_text("Chain verified in this browser")).to_be_visible()
    page.keyboard.press("R")
    expect(page.get_by_role("dialog", name="Run again")).to_be_visible()
    page.keyboard.press("Escape")


@pytest.mark.proof
def test_every_attempt_of_a_step_is_shown_with_its_error_its_log_and_its_inputs(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader().open(f"/runs/{run}?step=check-address")
    attempts = page.get_by_role("region", name="Attempts").locator(".attempt")
    expect(attempts).to_have_count(2)
    expect(attempts.nth(1)).to_contain_text("the address service did not answer")
    expect(attempts.nth(1)).to_contain_text("attempt 1 of the address")
    expect(attempts.nth(0)).to_contain_text("Succeeded")
    expect(page.get_by_role("complementary", name="Step")).to_contain_text("Main Street 1")
    expect(
        page.get_by_role("region", name="Attempts by step").get_by_label(re.compile("check-address, attempt 1: failed"))
    ).to_be_visible()


@pytest.mark.proof
def test_a_message_a_cancel_and_a_rerun(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader().open(f"/runs/{run}")
    page.get_by_role("button", name="Send the message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Message").fill("paid")
    dialog.get_by_label("Payload").fill("{nonsense")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The payload is not JSON")
    dialog.get_by_label("Payload").fill('{"amount": 3}')
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.get_by_text("Rerun of")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_label("Undo first what the run did").check()
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text(re.compile("invoice|nothing to undo"))
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".head .badge").first).to_contain_text(re.compile("Cancelled|Rolled back"))


def test_the_journal_is_verified_in_the_browser_and_a_forged_entry_is_found(site: Site, reader: Read) -> None:
    run = site.start("echo", {"value": 1})
    site.settle(run)
    page = reader().open(f"/runs/{run}?tab=journal")
    expect(page.get_by_text(re.compile(r"Chain verified in this browser: \d+ entries"))).to_be_visible()
    forged = "cast(replace(cast(body as text), 'step_claimed', 'step_blaimed') as blob)"
    if not site.url.startswith("sqlite:"):
        forged = "convert_to(replace(convert_from(body, 'UTF8'), 'step_claimed', 'step_blaimed'), 'UTF8')"
    site.run(damage(site.url, f"update journal set body = {forged} where run_id = '{run}' and seq = 2"))
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("Entry 2 is broken")


@pytest.mark.proof
def test_the_certificate_and_the_words_of_a_dialect(site: Site, reader: Read) -> None:
    run = site.start("echo", {"value": 1})
    site.settle(run)
    page = reader().open(f"/runs/{run}?tab=record")
    expect(page.get_by_text("The judge says: conforms")).to_be_visible()
    page.get_by_label("Words of").select_option("linear")
    expect(page).to_have_url(re.compile("as=linear"))
    expect(page.get_by_text("In the words of linear")).to_be_visible()
    expect(page.get_by_text("Status: COMPLETED")).to_be_visible()


@pytest.mark.proof
def test_a_run_that_does_not_exist_says_so(reader: Read) -> None:
    page = reader().open("/runs/01a1e12c-57d6-75bf-abba-e99e88c4e41f")
    expect(page.get_by_role("alert")).to_contain_text("There is no run")


def test_a_reader_without_scopes_is_offered_nothing_that_would_be_refused(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader("eve", "read").open(f"/runs/{run}")
    expect(page.locator(".why")).to_contain_text("waits for the message")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.get_by_role("button", name="Send the message")).to_have_count(0)
