"""The pages of administration: audit, users, hooks, policies, outbox; and two runs compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, POLICY, Site

expect.set_options(timeout=PATIENCE)


def test_rights_are_given_and_taken_and_the_audit_log_says_which(site: Site, reader: Read, tmp_path: Path) -> None:
    for name in ("gil", "hana"):
        site.key(name, "read")
    person = reader("dora")
    page = person.open("/users")
    row = page.get_by_role("region", name="Users").get_by_role("row").filter(has_text="gil")
    row.get_by_role("button", name="Give a role").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Role", exact=True).fill("finance")
    dialog.get_by_role("button", name="Give").click()
    expect(row).to_contain_text("finance")
    page.get_by_role("button", name="Delegate").click()
    dialog.get_by_label("For").fill("gil")
    dialog.get_by_label("Who decides").fill("hana")
    dialog.get_by_label("Reason").fill("on leave")
    dialog.get_by_role("button", name="Delegate").click()
    given = page.get_by_role("region", name="Delegations")
    expect(given).to_contain_text("on leave")
    expect(page.get_by_role("region", name="Users").get_by_role("row").filter(has_text="hana")).to_contain_text("gil")
    given.get_by_role("button", name="End").click()
    dialog.get_by_role("button", name="End the delegation").click()
    expect(given).to_have_count(0)
    row.get_by_role("button", name="Take the role finance from gil").click()
    dialog.get_by_role("button", name="Take the role").click()
    expect(row).not_to_contain_text("finance")

    run = site.start("payment")
    site.run(site.engine.cancel(run))
    page = person.open("/audit")
    entries = page.get_by_role("region", name="Entries")
    for said in (
        "dora gave gil the role finance",
        "dora took the role finance from gil",
        re.compile("dora let hana decide for gil: on leave"),
        "dora ended that hana decides for gil",
    ):
        expect(entries).to_contain_text(said)
    page.get_by_label("About").fill("gil")
    page.get_by_label("About").press("Enter")
    expect(page).to_have_url(re.compile("target=gil"))
    expect(entries.get_by_role("link", name="gil").first).to_have_attribute("href", re.compile("/users$"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "audit.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {one["target"] for one in kept} == {"gil"}
    assert "finance" in {one["detail"].get("role") for one in kept}
    page.get_by_role("button", name="Time").click()
    dialog.get_by_label("To").fill("2020-01-01T00:00")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("No entry matches")).to_be_visible()


def test_a_hook_is_saved_tried_changed_and_removed(reader: Read) -> None:
    page = reader().open("/hooks")
    expect(page.get_by_text("No inbound hooks")).to_be_visible()
    page.get_by_role("button", name="Add a hook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("region", name="Hooks").get_by_role("row").filter(has_text="payments")
    expect(row).to_contain_text("sends paid to the run of ${{ body.order }}")
    row.get_by_role("button", name="Try").click()
    dialog.get_by_role("button", name="Try").click()
    expect(dialog.locator(".problem, .badge").first).to_be_visible()
    dialog.get_by_role("button", name="Close").first.click()
    row.get_by_role("button", name="Change").click()
    text = dialog.get_by_label("Hook")
    text.fill(text.input_value().replace('"paid"', '"settled"'))
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("sends settled")
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("No inbound hooks")).to_be_visible()


def test_a_policy_is_published_after_a_look_at_what_changes(site: Site, reader: Read) -> None:
    hold = {"roles": ["finance"], "deadline": "24h", "not": ["requester"]}
    rule = {**POLICY["rules"][0], "when": "input.amount > 3", "approval": hold}  # type: ignore[dict-item]
    budget = {"name": "day", "usd": 5, "per": "90m"}
    site.run(site.engine.publish_policy({**POLICY, "rules": [rule], "budgets": [budget]}))
    page = reader().open("/policies")
    expect(page.get_by_text("in force")).to_be_visible()
    before = page.get_by_role("region", name="Revisions").get_by_role("row").count()
    page.get_by_role("button", name="Publish a policy").click()
    dialog = page.get_by_role("dialog")
    text = dialog.get_by_label("Policy")
    text.fill(text.input_value().replace("a second look", "two more looks"))
    dialog.get_by_role("button", name="Look").click()
    expect(dialog.get_by_role("region", name="Differences")).to_contain_text("two more looks")
    dialog.get_by_role("button", name="Publish").click()
    rows = page.get_by_role("region", name="Revisions").get_by_role("row")
    expect(rows).to_have_count(before + 1)
    newest = rows.filter(has_text="in force")
    newest.get_by_role("button", name="What changed").click()
    expect(dialog.get_by_role("region", name="Differences")).to_contain_text("rules[0].reason")
    dialog.get_by_role("button", name="Close").last.click()
    page.get_by_role("button", name="Switch off").click()
    dialog.get_by_role("button", name="Switch off").click()
    expect(rows.filter(has_text="in force")).to_contain_text("off")


def test_the_outbox_groups_what_no_sink_takes_and_shows_what_would_be_sent(site: Site, reader: Read) -> None:
    site.furnish()
    page = reader().open("/outbox")
    group = (
        page.get_by_role("region", name="Not delivered yet").get_by_role("row").filter(has_text="business key").first
    )
    group.get_by_role("button", name="Show").click()
    runs = page.get_by_role("dialog").filter(has_text="business key must have")
    runs.get_by_role("button", name="Events").first.click()
    events = page.get_by_role("dialog", name="Events of the run")
    expect(events.get_by_role("region", name="Payload").first).to_be_attached()
    events.get_by_role("button", name="Give up").first.click()
    reason = page.get_by_role("dialog", name="Give the event up")
    reason.get_by_label("Reason").fill("a test")
    reason.get_by_role("button", name="Give the event up").click()
    expect(reason).to_have_count(0)
    for _ in range(2):
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Test").first.click()
    expect(page.locator(".toasts")).to_contain_text("no message can be sent here")


def test_two_runs_are_compared_field_by_field(site: Site, reader: Read) -> None:
    runs = [site.start("echo", {"value": value}) for value in (1, 2)]
    for run in runs:
        site.settle(run)
    page = reader().page
    for run in runs:
        page.locator(f"#row-{run}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
    expect(page).to_have_url(re.compile(f"/runs/{runs[1]}/compare.other={runs[0]}"))
    expect(page.get_by_role("region", name="Steps")).to_contain_text("say")
    page.get_by_label("The other run").fill("00000000-0000-7000-8000-000000000000")
    page.get_by_label("The other run").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
