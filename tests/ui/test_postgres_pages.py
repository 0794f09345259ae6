"""The pages over PostgreSQL: a run is followed live, approved and verified."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.ui.conftest import DESKTOP
from tests.ui.stage import PATIENCE, Reader, Site

expect.set_options(timeout=PATIENCE)


@pytest.fixture
def site(postgres_dsn: str) -> Iterator[Site]:
    made = Site(postgres_dsn)
    made.open()
    yield made
    made.close()


def test_a_run_is_followed_approved_and_verified(site: Site, browser: Browser) -> None:
    reader = Reader(site, browser, **DESKTOP).sign_in(site.key("ann"))
    page = reader.page
    expect(page.get_by_text("No runs yet")).to_be_visible()
    run = site.start("order", {"order": "A-1"})
    expect(page.locator(f"#row-{run}")).to_contain_text("Blocked")
    page.locator(f"#row-{run}").get_by_role("link").click()
    page.locator(".why").get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator(".head .badge").first).to_contain_text("Rolled back")
    page.get_by_role("tab", name="Journal").click()
    expect(page.get_by_text(re.compile(r"Chain verified in this browser: \d+ entries"))).to_be_visible()
    for path in ("/overview", "/workers", "/audit", "/approvals"):
        reader.open(path)
        expect(page.locator("main .skeleton, main .problem")).to_have_count(0)
    reader.close()
