"""The inbox: why a policy asks, the facts in the dialog, changes that are requested, several gates at once."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from stepkeep.definition.native.reader import load_text
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)

PAYOUT = """
workflow: payout
timeout: 2h
input: [amount]
steps:
  - name: sign
    approval:
      prompt: May it be paid out?
      deadline: 1h
      facts: { amount: "${{ input.amount }}" }
"""
POLICY = {
    "policy": "house rules",
    "rules": [{"name": "careful", "steps": ["say"], "then": "hold", "reason": "Payouts need a second look."}],
}


def _gates(site: Site, *amounts: int) -> list[str]:
    site.run(site.engine.publish(load_text(PAYOUT, "payout.yaml")))
    runs = [site.start("payout", {"amount": amount}, business_key=f"invoice-{amount}") for amount in amounts]
    for run in runs:
        site.settle(run)
    return runs


def test_a_hold_of_a_policy_says_why_it_asks(site: Site, reader: Read) -> None:
    site.run(site.engine.publish_policy(POLICY))
    run = site.start("echo", {"value": 1})
    site.settle(run)
    page = reader().open("/approvals?show=all")
    card = page.get_by_role("article", name=re.compile("May say go on"))
    expect(card).to_contain_text("Payouts need a second look. Held by the rule careful of policy revision")
    card.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog")).to_contain_text("Payouts need a second look.")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    site.run(site.engine.policy_off())
    assert site.settle(run) == "succeeded"


def test_the_facts_stand_in_the_dialog_and_changes_are_requested(site: Site, reader: Read) -> None:
    [run] = _gates(site, 4711)
    page = reader().open("/approvals?show=all")
    card = page.get_by_role("article").filter(has_text="invoice-4711")
    expect(card).to_contain_text("4711")
    card.get_by_role("button", name="Request changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dl")).to_contain_text("4711")
    dialog.get_by_role("button", name="Request changes").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Say what is to change.")
    dialog.get_by_label("Comment").fill("another account, please")
    dialog.get_by_role("button", name="Request changes").click()
    expect(card).to_contain_text("another account, please")
    assert site.settle(run) == "blocked"
    site.run(site.engine.cancel(run))


def test_several_gates_are_approved_at_once(site: Site, reader: Read) -> None:
    runs = _gates(site, 1, 2, 3)
    page = reader().open("/approvals?show=all")
    for number in (1, 3):
        card = page.get_by_role("article").filter(has_text=f"invoice-{number}")
        card.get_by_label("Select this gate").check()
    bar = page.get_by_role("region", name="Selected gates")
    expect(bar).to_contain_text("2 gates selected")
    bar.get_by_role("button", name="Approve all").click()
    dialog = page.get_by_role("dialog", name="Approve: 2 gates")
    expect(dialog.locator("dl")).to_have_count(2)
    dialog.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("article").filter(has_text="invoice-1")).to_have_count(0)
    expect(bar).to_be_hidden()
    assert [site.settle(run) for run in runs] == ["succeeded", "blocked", "succeeded"]
    site.run(site.engine.cancel(runs[1]))


def test_on_a_phone_every_button_of_a_gate_is_in_sight(site: Site, reader: Read) -> None:
    [run] = _gates(site, 7)
    page = reader(phone=True).open("/approvals?show=all")
    card = page.get_by_role("article").filter(has_text="invoice-7")
    expect(card).to_be_visible()
    for name in ("Reject", "Request changes", "Approve"):
        box = card.get_by_role("button", name=name).bounding_box()
        assert box is not None, name
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 360, name
    site.run(site.engine.cancel(run))
