"""One browser and one service per module, one signed-in reader per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.ui.stage import Reader, Site, launch, opened

Read = Callable[..., Reader]

DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not one per session: while playwright is open, no other test of the process can call `asyncio.run`."""
    with sync_playwright() as playwright:
        opened = launch(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=["sqlite"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Over SQLite: pages know the HTTP API alone, whose tests run on both stores."""
    with opened(request, tmp_path_factory) as made:
        yield made


@pytest.fixture
def reader(site: Site, browser: Browser) -> Iterator[Read]:
    """Signs a person in at a browser; what a page complains about fails the test."""
    readers: list[Reader] = []

    def read(owner: str = "ann", *scopes: str, phone: bool = False, dark: bool = False, **options: Any) -> Reader:
        shape = {**(PHONE if phone else DESKTOP), "color_scheme": "dark" if dark else "light", **options}
        made = Reader(site, browser, **shape)
        readers.append(made)
        return made.sign_in(site.key(owner, *scopes))

    yield read
    for one in readers:
        one.close()
