"""A real service with a worker in a thread of its own, people and workflows for the pages, and the browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.worker.settings import Settings as WorkerSettings
from tests.databases import migrated_file
from tests.service import Service
from tests.system_programs import need_program

PATIENCE = 30_000
"""Milliseconds that the browser waits for anything, on a busy machine."""


def _flaky(ctx: sk.Context) -> dict[str, str]:
    ctx.logger.warning("attempt %d of the address", ctx.attempt)
    if ctx.attempt < 2:
        raise ConnectionError("the address service did not answer")
    return {"address": "Main Street 1"}


def _broken() -> None:
    raise ValueError("the card was declined")


def _shout(text: str) -> None:
    raise ValueError(text)


def handlers() -> Registry:
    registry = Registry()
    named: dict[str, Callable[..., Any]] = {
        "ui.quick": lambda: {"rows": 3},
        "ui.flaky": _flaky,
        "ui.broken": _broken,
        "ui.undo": lambda: "undone",
        "ui.echo": lambda value=None: value,
        "ui.shout": _shout,
    }
    for name, function in named.items():
        registry.register(HandlerSpec(name=name, function=function))
    return registry


ORDER = """
workflow: order
timeout: 2h
on_failure: compensate
input:
  order: { type: string, description: the number of the order }
  amount: { type: integer, required: false }
steps:
  - { name: reserve, uses: ui.quick, timeout: 10s, depends_on: [], undo: { uses: ui.undo, timeout: 10s } }
  - name: check-address
    uses: ui.flaky
    timeout: 10s
    depends_on: []
    effect: read
    retry: { initial: 1ms, jitter: 0 }
  - name: sign-off
    approval: { prompt: May this order be shipped?, deadline: 1h }
    depends_on: [reserve, check-address]
  - { name: ship, uses: ui.broken, timeout: 10s, depends_on: [sign-off], effect: read, retry: { max_attempts: 1 } }
"""
"""A retry, a gate, and a failure that is rolled back."""

PAYMENT = """
workflow: payment
timeout: 2h
steps:
  - { name: invoice, uses: ui.quick, timeout: 10s, effect: read }
  - { name: paid, wait: { event: paid, deadline: 1h } }
  - { name: book, uses: ui.quick, timeout: 10s, effect: read }
"""
"""A message."""

ECHO = """
workflow: echo
steps:
  - { name: say, uses: ui.echo, with: { value: "${{ input.value }}" }, timeout: 10s, effect: read }
"""
"""What goes in comes out."""

SHOUT = """
workflow: shout
steps:
  - { name: cry, uses: ui.shout, timeout: 10s, effect: read, retry: { max_attempts: 1 } }
"""
"""What goes in is the error."""


HELD = """
workflow: held
timeout: 2h
steps:
  - { name: charge, uses: ui.broken, timeout: 10s, effect: read, retry: { max_attempts: 1 }, on_exhausted: hold }
"""
"""A step whose attempts are used up, and that holds until a person decides."""

STUCK = """
workflow: stuck
timeout: 2h
steps:
  - { name: fetch, uses: ui.broken, timeout: 10s, effect: read, retry: { max_attempts: 5, initial: 1h, jitter: 0 } }
"""
"""A step that waits an hour for its next attempt."""

BY_HAND = """
workflow: by-hand
timeout: 2h
steps:
  - { name: pack, uses: ui.quick, timeout: 10s, effect: read, completion: manual }
"""
"""A step that a person completes."""

NIGHTLY = """
workflow: nightly
timeout: 2h
triggers:
  - { name: night, schedule: "30 2 * * *", zone: Europe/Zurich }
steps:
  - { name: report, uses: ui.quick, timeout: 10s, effect: read, queue: printers }
"""
"""A trigger."""

MAPPED = """
workflow: mapped
timeout: 2h
input: [items]
steps:
  - name: each
    uses: ui.echo
    timeout: 10s
    effect: read
    map: { over: "${{ input.items }}", in_flight: 3 }
    with: { value: "${{ item }}" }
  - { name: after, uses: ui.quick, timeout: 10s, effect: read, depends_on: [each] }
"""
"""A step that runs once for each item."""

CHOICE = """
workflow: choice
timeout: 2h
input: [amount]
steps:
  - name: pay
    switch:
      - { name: transfer, if: "${{ input.amount > 1000 }}", uses: ui.quick, timeout: 10s, effect: read }
      - { name: card, uses: ui.quick, timeout: 10s, effect: read }
"""
"""One of two cases."""

PARENT = """
workflow: parent
timeout: 2h
steps:
  - { name: pay, workflow: payment }
"""
"""A child run that waits for a message."""

FAMILY = """
workflow: family
timeout: 2h
steps:
  - { name: buy, workflow: order, with: { order: A-2 } }
"""
"""A child run that has done something that can be undone, and waits for approval."""

POLICY = {
    "policy": "house rules",
    "rules": [{"name": "careful", "steps": ["pay*"], "then": "hold", "reason": "Payouts need a second look."}],
}


class Site(Service):
    """One process's service: its address, its engine, and people with keys."""

    def __init__(self, url: str, *, has_worker: bool = True) -> None:
        worker = {"app": "ui", "settings": WorkerSettings(log_lines=50)} if has_worker else {}
        super().__init__(url, handlers(), tenant="default", **worker)

    async def prepare(self) -> None:
        for text in (ORDER, PAYMENT, ECHO, SHOUT, HELD, STUCK, BY_HAND, NIGHTLY, MAPPED, CHOICE, PARENT, FAMILY):
            await self.engine.publish(load_text(text, "page.yaml"))

    def start(self, workflow: str, given: Any = None, **options: Any) -> str:
        """A new run of a published workflow."""
        return self.run(self._start(workflow, given, options))

    async def _start(self, workflow: str, given: Any, options: dict[str, Any]) -> str:
        plan = await find_plan(self.engine.transactor, workflow, None, tenant=self.engine.tenant)
        return (await self.engine.start(plan, given, **options)).run_id

    def furnish(self) -> str:
        """Something to see on every page; returns a run that waits for approval. The outbox has a dead event: the
        key of its message is too long."""
        return self.run(self._furnish())

    async def _furnish(self) -> str:
        if not (await self.engine.sinks.list())["sinks"]:
            options = {"key": "{run_id}" * 8, "name": "ended"}
            await self.engine.sinks.add("shop", "message", events=("endings",), options=options)
            await self.engine.publish_policy(POLICY)
            await self.engine.pauses.pause_queue("printers", reason="out of paper")
            await self.engine.jobs.start("cancel", where={"workflow": "payment"}, reason="a test of bulk actions")
        for workflow, given in (("echo", {"value": 1}), ("held", None), ("by-hand", None), ("payment", None)):
            await self.engine.wait(await self._start(workflow, given, {}), seconds=30, until_blocked=True)
        run = await self._start("order", {"order": "A-1"}, {"business_key": None, "labels": {"team": "a"}})
        await self.engine.wait(run, seconds=30, until_blocked=True)
        return run

    def settle(self, run_id: str) -> str:
        """The state of a run once it has ended or waits for people or messages."""
        return self.run(self.engine.wait(run_id, seconds=30, until_blocked=True)).state


@contextmanager
def opened(request: pytest.FixtureRequest, made: pytest.TempPathFactory, *, has_worker: bool = True) -> Iterator[Site]:
    """A service over an own database of the kind that the parameter of the fixture names."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = migrated_file(made.mktemp("ui") / "pages.db")
        else:
            url = stack.enter_context(request.getfixturevalue("postgres_server").fresh_database())
        site = Site(url, has_worker=has_worker)
        site.open()
        yield site
        site.close()


class Reader:
    """A person at a browser who is signed in."""

    def __init__(self, site: Site, browser: Browser, **options: Any) -> None:
        self.site = site
        self.context = browser.new_context(base_url=site.address, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        # Answers such as 401 or 409 are part of the tests; a broken policy or script is not.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def sign_in(self, key: str) -> Reader:
        self.page.goto("/ui/runs")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Runs", level=1).wait_for()
        return self

    def open(self, path: str) -> Page:
        """Go to a page, by its address."""
        self.page.goto(f"/ui{path}")
        self.page.locator("main h1").first.wait_for()
        return self.page

    def close(self) -> None:
        self.context.close()
        assert not self.complaints, self.complaints


@cache
def chromium() -> str:
    """The browser of this machine."""
    return need_program("chromium")


def launch(playwright: Playwright) -> Browser:
    # The sandbox of the browser needs rights that root in a container does not have.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=chromium(), args=arguments)
