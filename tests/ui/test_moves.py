"""The buttons that move a run: each cause leads to the operation that ends it, for readers whose scopes allow it, and
never while they look back in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from stepkeep.api.access import ROUTES, scopes_of
from stepkeep.definition.native.reader import load_text
from stepkeep.operations.access import Scope
from stepkeep.operations.runs.causes import Why
from tests.suites import in_proof, short_and_all
from tests.ui.conftest import DESKTOP, Read
from tests.ui.stage import PATIENCE, Reader, Site, opened

expect.set_options(timeout=PATIENCE)

RUN = "019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"
HOLD = ["retry", "skip", "fail", "complete"]


def cause(code: Why, choices: list[str] | None = None, **told: Any) -> dict[str, Any]:
    """A cause at the step `a`, and what may be decided about it."""
    return {"choices": choices or [], "cause": {"code": code, "subject": "a", "command": "stepkeep …", **told}}


def paused(scope: str, queue: str | None = None) -> dict[str, Any]:
    return cause(Why.PAUSED, pause={"scope": scope, "queue": queue})


OFFERED: dict[str, tuple[dict[str, Any], dict[str, tuple[str, dict[str, Any]]]]] = {
    "a gate": (
        cause(Why.APPROVAL, ["approve", "reject"]),
        {"Approve": ("approve", {"step": "a"}), "Reject": ("reject", {"step": "a"})},
    ),
    "a gate of others": (cause(Why.APPROVAL, ["approve", "reject"], command=None), {}),
    "a hold": (
        cause(Why.DECISION, HOLD),
        {"Retry": ("decide", {"choice": "retry"}), "Skip or fail": ("decide", {"choice": "skip"})},
    ),
    "a hold of a step that the run needs": (
        cause(Why.DECISION, ["retry", "fail"]),
        {"Retry": ("decide", {"choice": "retry"}), "Fail": ("decide", {"choice": "fail"})},
    ),
    "a hold of others": (cause(Why.DECISION, HOLD, command=None), {}),
    "a retry": (cause(Why.RETRY, HOLD), {"Retry now or decide": ("decide", {"choice": "retry"})}),
    "a retry that takes no decision": (cause(Why.RETRY), {}),
    "a completion": (cause(Why.COMPLETION), {"Complete": ("complete", {"outcome": "Succeeded"})}),
    "a completion of others": (cause(Why.COMPLETION, command=None), {}),
    "a message": (cause(Why.EVENT), {"Send the message": ("send", {"name": "paid"})}),
    "no start": (cause(Why.NOT_STARTED), {"Start now": ("start_idle", {})}),
    "a start to come": (cause(Why.SCHEDULED), {"Start now": ("start_idle", {})}),
    "a pause of the run": (paused("run"), {"Resume": ("resume", {})}),
    "a pause of a queue": (
        paused("queue", "printers"),
        {"Resume the queue": ("pauses.resume_queue", {"queue": "printers"})},
    ),
    "a pause of the default queue": (
        paused("queue", ""),
        {"Resume the queue": ("pauses.resume_queue", {"queue": ""})},
    ),
    "a pause of the tenant": (paused("tenant"), {"Resume the tenant": ("pauses.resume_tenant", {})}),
    "a quarantine": (cause(Why.QUARANTINED), {"Release": ("release", {})}),
    "a standstill": (cause(Why.STUCK), {"Cancel the run": ("cancel", {})}),
}
"""Each cause, and the buttons with the operation that each of them asks for. Every other cause has no button."""

CASES = {name: one for name, (one, _) in OFFERED.items()} | {
    code: cause(code) for code in Why if code not in {one["cause"]["code"] for one, _ in OFFERED.values()}
}

PRESS = """async ({ base, run, cases, scopes }) => {
  const { moves } = await import(base + "actions.js"), { session } = await import(base + "api.js");
  session().scopes = scopes;
  const told = {}, asked = fetch;
  let sent = null;
  window.fetch = (address, options) => {
    if (options?.method !== "POST") return asked(address, options);
    sent = { path: new URL(address, location).pathname, body: JSON.parse(options.body) };
    return Promise.resolve(new Response('{"repeated": true}', { headers: { "content-type": "application/json" } }));
  };
  for (const [name, { cause, choices }] of Object.entries(cases)) {
    const waiting_for = [{ step: "a", for: "event", event: "paid" }];
    const view = { run: { id: run, waiting_for }, steps: [{ name: "a", state: "retrying", choices }] };
    told[name] = {};
    for (const { label, act } of moves(cause, view, () => {})) {
      sent = null;
      document.querySelectorAll(".toast").forEach((one) => one.remove());
      const started = act(), dialog = document.querySelector("dialog[open]");
      await started;
      if (dialog) {
        for (const one of dialog.querySelectorAll("input:not([type=checkbox])")) one.value ||= "because";
        const closed = new Promise((done) => dialog.addEventListener("close", done));
        dialog.querySelector("form").requestSubmit();
        await closed;
      }
      told[name][label] = { ...sent, toast: document.querySelector(".toast")?.innerText ?? "" };
    }
  }
  window.fetch = asked;
  return told;
}"""
"""Presses every button of every case as a reader with these scopes. Each request is answered: it had been done."""


@cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    posts = [(path.removeprefix("POST "), name) for path, name in ROUTES.items() if path.startswith("POST ")]
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), name) for path, name in posts]


def operation(path: str) -> str:
    """The operation that a POST to this path asks for."""
    return next(name for template, name in _templates() if template.fullmatch(path))


def test_each_cause_offers_the_operations_that_end_it_as_far_as_the_scopes_of_the_reader_allow(reader: Read) -> None:
    page = reader().open("/keys")
    base = page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')")
    for scopes in (tuple(Scope), *((Scope.READ, one) for one in Scope)):
        pressed = page.evaluate(PRESS, {"base": base, "run": RUN, "cases": CASES, "scopes": scopes})
        _check_pressed(pressed, {*scopes})


def _check_pressed(pressed: dict[str, dict[str, Any]], scopes: set[Scope]) -> None:
    for name in CASES:
        _, wanted = OFFERED.get(name, ({}, {}))
        allowed = {label: one for label, one in wanted.items() if {*scopes_of(one[0])} <= scopes}
        found = {label: operation(one["path"]) for label, one in pressed[name].items()}
        assert found == {label: asked for label, (asked, _) in allowed.items()}, name
        for label, (_, body) in allowed.items():
            sent = pressed[name][label]
            assert body.items() <= sent["body"].items(), (name, label)
            assert sent["path"].startswith((f"/runs/{RUN}/", "/pauses/")), (name, label)
            if not sent["path"].startswith("/pauses/"):
                assert sent["toast"] in ("", "It was so before: nothing has changed."), (name, label)


# -- pauses: what the button does to a run ---------------------------------------------------------------------------
@pytest.fixture(scope="module", params=short_and_all(["sqlite"], ["sqlite", "postgres"]))
def idle_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service without a worker: what is ready stays so, and no worker claims before it has read a pause."""
    with opened(request, tmp_path_factory, has_worker=False) as made:
        yield made


@pytest.fixture
def person(idle_site: Site, browser: Browser) -> Iterator[Reader]:
    made = Reader(idle_site, browser, **DESKTOP).sign_in(idle_site.key())
    yield made
    made.close()


def _pause(site: Site, scope: str) -> str:
    """A run of `nightly`, whose step is in the queue `printers`, that this pause holds back."""
    pauses = site.engine.pauses
    if scope == "workflow":
        site.run(pauses.pause_workflow("nightly", reason="out of paper"))
    run = site.start("nightly")
    if scope == "queue":
        site.run(pauses.pause_queue("printers", reason="out of paper"))
    if scope == "tenant":
        site.run(pauses.pause_tenant(reason="out of paper"))
    if scope == "run":
        site.run(site.engine.pause(run, reason="out of paper"))
    return run


@pytest.mark.parametrize(
    ("scope", "label", "still"),
    [
        ("run", "Resume", []),
        ("workflow", "Resume", ["workflow"]),
        ("queue", "Resume the queue", []),
        ("tenant", "Resume the tenant", []),
    ],
)
def test_the_button_of_a_pause_ends_the_pause_that_holds_the_run_back(
    idle_site: Site, person: Reader, scope: str, label: str, still: list[str]
) -> None:
    """A run that started under a paused workflow is paused itself; later runs of the workflow still start paused."""
    run = _pause(idle_site, scope)
    page = person.open(f"/runs/{run}")
    expect(page.locator(".why")).to_contain_text("paused")
    page.locator(".why").get_by_role("button", name=label, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".toast")).to_contain_text("Resumed")
    expect(page.locator(".why")).to_contain_text("no worker is alive")
    expect(page.locator(".why").get_by_role("button", name=re.compile("Resume"))).to_have_count(0)
    assert [one["scope"] for one in idle_site.run(idle_site.engine.pauses.list())["pauses"]] == still
    if still:
        idle_site.run(idle_site.engine.pauses.resume_workflow("nightly"))


def test_a_run_that_was_resumed_meanwhile_is_not_said_to_be_resumed(idle_site: Site, person: Reader) -> None:
    run = _pause(idle_site, "run")
    page = person.open(f"/runs/{run}")
    page.locator(".why").get_by_role("button", name="Resume").click()
    idle_site.run(idle_site.engine.resume(run))
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".toast")).to_have_text("It was so before: nothing has changed.")


# -- gates and the past ----------------------------------------------------------------------------------------------
GATES = """
workflow: gates
timeout: 2h
steps:
  - { name: threshold-ok, approval: { prompt: A decision on hold?, deadline: 1h }, depends_on: [] }
  - { name: plain, approval: { prompt: "Yes?", deadline: 1h, not: [requester] }, depends_on: [] }
  - name: pay
    uses: ui.broken
    timeout: 10s
    effect: read
    depends_on: []
    retry: { max_attempts: 1 }
    on_exhausted: hold
"""


def _acts(page: Page) -> list[str]:
    """The actions of the panel of a step."""
    panel = page.get_by_role("complementary", name="Step")
    expect(panel).to_be_visible()
    return [text for text in panel.locator("header button").all_inner_texts() if text and text != "Close the step"]


def test_the_words_of_a_gate_do_not_change_what_may_be_decided_about_it(site: Site, reader: Read) -> None:
    site.run(site.engine.publish(load_text(GATES, "gates.yaml")))
    run = site.start("gates", by="ann")
    site.settle(run)
    person = reader("ann")
    page = person.open(f"/runs/{run}?step=threshold-ok")
    expect(page.get_by_role("complementary", name="Step").get_by_role("button", name="Approve")).to_be_visible()
    assert _acts(page) == ["Approve", "Reject"]
    page = person.open(f"/runs/{run}?step=pay")
    expect(page.get_by_role("complementary", name="Step").get_by_role("button", name="Decide")).to_be_visible()
    assert _acts(page) == ["Decide"]
    page = person.open(f"/runs/{run}?step=plain")
    expect(page.locator(".why")).to_be_visible()
    assert _acts(page) == [], "ann asked for the run"
    page = person.open(f"/runs/{run}?step=threshold-ok")
    page.get_by_role("complementary", name="Step").get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("complementary", name="Step").locator(".badge").first).to_contain_text("Succeeded")


def test_a_reader_who_looks_back_is_offered_no_action(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader().open(f"/runs/{run}?step=sign-off")
    panel = page.get_by_role("complementary", name="Step")
    expect(panel.get_by_role("button", name="Approve")).to_be_visible()
    slider = page.get_by_label("Entry of the journal")
    last = int(slider.get_attribute("max") or 0)
    for seq in (1, last // 2, last - 1):
        slider.fill(str(seq))
        expect(page.locator(".past")).to_contain_text(f"after entry {seq} of {last}")
        for step in ("reserve", "sign-off"):
            page.locator(f'.graph .node[aria-label^="{step}:"]').click()
            expect(panel.get_by_role("heading", level=2)).to_have_text(step)
            assert _acts(page) == [], (seq, step)
        actions = page.get_by_role("button", name=re.compile("^(Approve|Reject|Send|Pause|Cancel|Migrate|Decide)"))
        expect(actions).to_have_count(0)
    page.locator("h1").first.click()
    for key in ("m", "a", "r", "p", "c"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator(".past").get_by_role("button", name="Now").click()
    expect(panel.get_by_role("button", name="Approve")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()


# -- scopes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("scopes", "is_admin"), [(("read",), False), in_proof(("read", "admin"), True)])
def test_keys_and_the_audit_log_are_offered_as_the_scopes_allow(
    site: Site, reader: Read, scopes: tuple[str, ...], is_admin: bool
) -> None:
    site.key("dora")
    person = reader("carl", *scopes)
    page = person.open("/keys")
    rows = page.get_by_role("region", name="Keys").get_by_role("row")
    for owner, may_revoke in (("dora", is_admin), ("carl", True)):
        row = rows.filter(has=page.get_by_role("cell", name=owner, exact=True)).filter(has_text="Live").first
        expect(row).to_be_visible()
        assert (row.get_by_role("button", name="Revoke").count() > 0) == may_revoke, owner
        assert (row.get_by_role("button", name="Replace").count() > 0) == is_admin, owner
    audit = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Audit")
    expect(audit).to_have_count(int(is_admin))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog").get_by_text("Audit", exact=True)).to_have_count(int(is_admin))
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("Find a run")).fill("aud")
    expect(page.get_by_role("option", name="Audit")).to_have_count(int(is_admin))


@pytest.mark.parametrize(("scope", "offered"), [("start", ["Fire now"]), in_proof("operate", ["Pause", "Backfill"])])
def test_a_trigger_is_fired_with_the_scope_start_and_paused_with_operate(
    site: Site, reader: Read, scope: str, offered: list[str]
) -> None:
    page = reader("finn", "read", scope).open("/triggers")
    row = page.get_by_role("row", name="nightly/night")
    expect(row).to_be_visible()
    assert row.get_by_role("button").all_inner_texts() == ["Firings", *offered]


def test_a_run_is_quarantined_by_readers_with_the_scope_operate_only(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader("gina", "read", "decide").open(f"/runs/{run}")
    expect(page.locator(".why")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name=re.compile("Find a run")).fill("this run")
    expect(page.get_by_role("option", name="Copy the id of this run")).to_be_visible()
    expect(page.get_by_role("option", name="Quarantine this run")).to_have_count(0)
