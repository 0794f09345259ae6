"""The first minute of `stepkeep dev`: its link signs in, its tour is followed, approved, failed and rolled back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import DESKTOP, PHONE
from tests.ui.stage import PATIENCE

expect.set_options(timeout=PATIENCE)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What `stepkeep dev --json` says; the process is stopped at the end."""
    child = subprocess.Popen(
        [sys.executable, "-m", "stepkeep", "dev", "--port", "0", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")},
    )
    try:
        assert child.stdout is not None
        told = "".join(iter(child.stdout.readline, "}\n"))
        yield json.loads(told + "}")["service"]
    finally:
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors


def test_the_link_opens_the_tour_which_ends_in_a_rollback(dev: dict[str, Any], browser: Browser) -> None:
    context = browser.new_context(**PHONE)
    page = context.new_page()
    page.goto(dev["pages"])
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    assert "code" not in page.url
    assert page.evaluate("document.cookie") == "", "scripts cannot read the session"
    page.get_by_role("link", name="tour").click()
    expect(page.locator(".why")).to_contain_text("sign-off waits for approval")
    page.locator(".why").get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".head .badge").first).to_contain_text("Rolled back")
    expect(page.locator(".why")).to_contain_text("the carrier has no truck today")
    page.get_by_label("check-address: Succeeded").click()
    attempts = page.get_by_role("region", name="Attempts", exact=True)
    expect(attempts).to_contain_text("asking the address service, attempt 1")
    expect(attempts).to_contain_text("the address service did not answer")
    context.close()
    # The code of a link works once.
    other = browser.new_context()
    page = other.new_page()
    page.goto(dev["pages"])
    expect(page.get_by_role("heading", name="Sign in to Stepkeep")).to_be_visible()
    other.close()


@pytest.mark.proof
def test_the_tour_by_keyboard_alone(dev: dict[str, Any], browser: Browser) -> None:
    """Followed, approved, failed, rolled back and explained, without a pointer."""
    context = browser.new_context(**DESKTOP)
    page = context.new_page()
    page.goto(dev["pages"])
    expect(page.get_by_role("row", name=re.compile("tour"))).to_contain_text("Blocked")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".why")).to_contain_text("sign-off waits for approval")
    page.keyboard.press("m")
    expect(page.get_by_role("dialog", name="Approve").get_by_label("Comment")).to_be_focused()
    page.keyboard.type("seen")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".head .badge").first).to_contain_text("Rolled back")
    expect(page.locator(".why")).to_contain_text("the carrier has no truck today")
    panel = page.get_by_role("complementary", name="Step", exact=True)
    for _ in range(12):
        page.keyboard.press("j")
        if "check-address" in panel.inner_text():
            break
    expect(panel).to_contain_text("the address service did not answer")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.keyboard.press("[")
    expect(page.locator(".past")).to_contain_text("after entry")
    page.keyboard.press("4")
    expect(page.get_by_text(re.compile("Chain verified in this browser"))).to_be_visible()
    page.keyboard.press("5")
    expect(page.get_by_text("The judge says: conforms")).to_be_visible()
    context.close()
