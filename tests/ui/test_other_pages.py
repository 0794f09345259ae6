"""The inbox, the overview, workflows, workers and lists; hostile text; accessibility; every page at every size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache

import pytest
from playwright.sync_api import Page, expect

from stepkeep.definition.native.reader import load_text
from tests.npm_packages import need_package
from tests.suites import in_proof
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Reader, Site

expect.set_options(timeout=PATIENCE)

PAGES = (
    "/runs",
    "/approvals?show=all",
    "/overview",
    "/errors",
    "/workflows",
    "/workflows/order",
    "/editor",
    "/workers",
    "/jobs",
    "/triggers",
    "/outbox",
    "/hooks",
    "/policies",
    "/keys",
    "/users",
    "/audit",
)

HOSTILE = {
    "script": "<script>document.title='taken'</script>",
    "markup": "<img src=x onerror=\"document.title='taken'\"><b>bold</b>",
    "bidi": "invoice\u202efdp.exe",
    "long": "x" * 5_000,
    "empty": "",
    "quote": "\"'`${7*7}{{7*7}}",
    "nul": "before\u0001after",
}


def test_a_gate_is_decided_in_the_inbox_on_a_phone(site: Site, reader: Read) -> None:
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page = reader(phone=True).open("/approvals")
    card = page.get_by_role("article", name=re.compile("May this order be shipped")).first
    expect(card).to_contain_text("Asked by service")
    expect(card).to_contain_text(re.compile(r"in 5\d min"))
    card.get_by_role("button", name="Reject").click()
    page.get_by_role("dialog").get_by_label("Comment").fill("not today")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    assert site.run(site.engine.show(run, step="sign-off"))["step"]["record"]["comment"] == "not today"


@pytest.mark.proof
def test_the_inbox_says_why_a_person_may_not_decide(site: Site, reader: Read) -> None:
    text = (
        "{workflow: own, timeout: 2h, steps: [{name: sign, approval: {prompt: Mine?, deadline: 1h, not: [requester]}}]}"
    )
    site.run(site.engine.publish(load_text(text, "own.yaml")))
    person = reader("cleo")
    page = person.open("/workflows/own")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.locator(".why")).to_contain_text("waits for approval")
    page = person.open("/approvals?show=all")
    card = page.get_by_role("article", name=re.compile("Mine"))
    expect(card.locator(".refusal")).to_contain_text(re.compile("cleo|request", re.IGNORECASE))
    expect(card.get_by_role("button", name="Approve")).to_have_count(0)


@pytest.mark.proof
def test_a_workflow_is_written_checked_published_and_started(site: Site, reader: Read) -> None:
    page = reader().open("/editor")
    editor = page.get_by_label("Definition in YAML")
    editor.fill("workflow: fresh\nsteps:\n  - name: one\n    uses: ui.quick\n    timeout: soon\n")
    expect(page.get_by_text("line 5")).to_be_visible()
    expect(page.get_by_role("button", name="Publish")).to_be_disabled()
    page.get_by_role("button", name="line 5").click()
    expect(editor).to_be_focused()
    assert editor.evaluate("(one) => one.value.slice(one.selectionStart, one.selectionEnd)") == "    timeout: soon"
    expect(page.locator(".numbers")).to_have_text(re.compile("1\n2\n3\n4\n5\n6"))
    editor.fill("workflow: fresh\ntimeout: 1h\nsteps:\n  - {name: one, uses: no.such, timeout: 5s, effect: read}\n")
    expect(page.locator(".findings")).to_contain_text("No live worker has the handler no.such")
    page.get_by_role("button", name=re.compile("^one:")).click()
    expect(editor).to_be_focused()
    editor.fill("workflow: fresh\ntimeout: 1h\nsteps:\n  - {name: one, uses: ui.quick, timeout: 5s, effect: read}\n")
    expect(page.get_by_text("No live worker")).to_have_count(0)
    expect(page.get_by_text("fresh: 1 step, no problems")).to_be_visible()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("heading", name="fresh", level=1)).to_be_visible()
    expect(page.locator(".graph .node")).to_have_count(1)
    page.get_by_role("tab", name="Failure paths").click()
    expect(page.get_by_role("region", name="Failure paths")).to_contain_text("one times out")
    site.run(
        site.engine.publish(
            load_text(
                "{workflow: fresh, version: 2, steps: [{name: one, uses: ui.quick, timeout: 9s, effect: read}]}",
                "f.yaml",
            )
        )
    )
    page.reload()
    page.get_by_role("tab", name="Differences").click()
    expect(page.get_by_role("region", name="Differences")).to_contain_text("9s")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.locator(".head .badge").first).to_contain_text("Succeeded")


@pytest.mark.proof
def test_workers_overview_keys_users_and_audit_tell_what_there_is(site: Site, reader: Read) -> None:
    ended = site.start("echo", {"value": 1})
    site.settle(ended)
    person = reader("dora")
    page = person.open("/workers")
    expect(page.get_by_role("region", name="Workers")).to_contain_text("6 handlers")
    page = person.open("/overview")
    expect(page.get_by_role("img", name=re.compile("Runs by start: .* succeeded"))).to_be_visible()
    page = person.open("/users")
    page.get_by_role("button", name="Register a user").click()
    page.get_by_role("dialog").get_by_label("Name").fill("finn")
    page.get_by_role("dialog").get_by_role("button", name="Register").click()
    expect(page.get_by_role("region", name="Users")).to_contain_text("finn")
    page = person.open("/keys")
    page.get_by_role("button", name="Make a key").click()
    page.get_by_role("dialog").get_by_label("Owner").fill("finn")
    page.get_by_role("dialog").get_by_role("button", name="Make").click()
    made = page.get_by_role("dialog", name="The new key")
    expect(made).to_contain_text(re.compile(r"sk_[0-9a-f]{16}_"))
    made.get_by_role("button", name="Close").last.click()
    page = person.open("/audit")
    expect(page.get_by_role("region", name="Entries")).to_contain_text("made a key for finn: read")


def test_hostile_names_outputs_and_errors_show_as_text(site: Site, reader: Read) -> None:
    given = {"value": {**HOSTILE, HOSTILE["markup"]: ["<i>"], "megabyte": "m" * 900_000}}
    run = site.start("echo", given, business_key=HOSTILE["script"], labels={"l": HOSTILE["markup"][:60]})
    site.settle(run)
    bad = site.start("shout", {"text": HOSTILE["markup"] + HOSTILE["bidi"] + HOSTILE["long"]})
    site.settle(bad)
    person = reader()
    page = person.page
    for path in ("/runs", f"/runs/{run}", f"/runs/{run}?tab=data", f"/runs/{run}?step=say", f"/runs/{bad}?step=cry"):
        person.open(path)
        expect(page.get_by_text("<img src=x onerror").first).to_be_attached()
        if path.endswith("data"):
            expect(page.get_by_text("⟨U+202E⟩").first).to_be_visible()
            expect(page.get_by_text(HOSTILE["script"]).first).to_be_visible()
            expect(page.get_by_role("button", name="Show all 900.0 kB").first).to_be_visible()
        assert page.locator("main img, main script, main bdi b").count() == 0
        assert "taken" not in page.title()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_browser_itself_refuses_markup(reader: Read) -> None:
    person = reader()
    page = person.page
    refused = page.evaluate(
        """() => { try { document.body.innerHTML = "<b>x</b>"; return false; } catch (error) { return error.name; } }"""
    )
    assert refused == "TypeError"
    assert page.evaluate("document.body.innerText").find("Runs") >= 0
    complaints, person.complaints = person.complaints, []
    assert ["TrustedHTML" in one for one in complaints] == [True]


@pytest.mark.proof
def test_a_thousand_steps_are_laid_out_without_overlaps(reader: Read) -> None:
    page = reader().page
    base = page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')")
    found = page.evaluate(
        """async (base) => {
          const { layout } = await import(base + "components/layout.js");
          const nodes = Array.from({ length: 1000 }, (_, at) => ({ id: String(at), width: 172, height: 44 }));
          const edges = nodes.flatMap((_, at) => [1, 7, 40].filter((by) => at >= by && at % by === 0)
            .map((by) => ({ from: String(at - by), to: String(at) })));
          const { places } = layout(nodes, edges);
          const boxes = [...places.values()].sort((a, b) => a.x - b.x || a.y - b.y);
          const meets = boxes.some((one, at) => at && boxes[at - 1].x === one.x && boxes[at - 1].y + 44 > one.y + 0.01);
          const back = edges.some(({ from, to }) => places.get(from).x >= places.get(to).x);
          return { count: places.size, meets, back };
        }""",
        base,
    )
    assert (found["count"], found["meets"], found["back"]) == (1000, False, False)


AUDIT = """() => {
  const shown = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const name = (one) => (one.getAttribute("aria-label") || one.textContent || one.title || one.placeholder || "").trim()
    || [...(one.labels ?? [])].map((label) => label.textContent).join("").trim();
  const found = [];
  for (const one of document.querySelectorAll("a[href], button, input, select, textarea, [role=button], [role=tab]"))
    if (shown(one) && !name(one)) found.push(`no name: ${one.outerHTML.slice(0, 120)}`);
  for (const one of document.querySelectorAll("img:not([alt])")) found.push("image without alt");
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids.filter((one, at) => ids.indexOf(one) !== at)) found.push(`id twice: ${id}`);
  for (const one of document.querySelectorAll("[aria-labelledby], [aria-controls]"))
    for (const attribute of ["aria-labelledby", "aria-controls"])
      if (one.hasAttribute(attribute) && !document.getElementById(one.getAttribute(attribute)))
        found.push(`${attribute} names nothing`);
  if (document.querySelectorAll("main h1").length !== 1) found.push("not one h1");
  const channel = (value) => { const c = value / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (layers) => { canvas.clearRect(0, 0, 1, 1);
    for (const colour of layers) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !shown(one)) continue;
    if (one.closest("svg, :disabled, option, .offscreen, .skip")) continue;
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const back = paint(["white", ...layers]), front = paint(["white", ...layers, getComputedStyle(one).color]);
    const [high, low] = [light(back), light(front)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(getComputedStyle(one).fontSize);
    if (ratio < (size >= 24 ? 3 : 4.5)) {
      const said = `contrast ${ratio.toFixed(2)}: ${one.className} "${walker.currentNode.data.trim().slice(0, 30)}"`;
      if (!seen.has(said)) { seen.add(said); found.push(said); }
    }
  }
  return found;
}"""
"""What a screen reader and weak eyes need: names, labels, one heading, contrast of 4.5 (3 for large text)."""


AXE = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  // Experimental in axe: the name of a node begins with its visible name, then tells its state.
  const rules = { "label-content-name-mismatch": { enabled: false } };
  const { violations } = await axe.run(document, { runOnly: tags, rules });
  const shown = (nodes) => nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ");
  return violations.map((one) => `axe ${one.id}: ${shown(one.nodes)}`);
}"""


def _axe(page: Page) -> list[str]:
    """What axe-core finds. The debugger evaluates it, because the policy of the pages allows no other script."""
    page.evaluate(_axe_source())
    found: list[str] = page.evaluate(AXE)
    return found


@cache
def _axe_source() -> str:
    return (need_package("axe-core") / "axe.min.js").read_text()


def _check(page: Page) -> list[str]:
    found: list[str] = page.evaluate(AUDIT)
    width = page.viewport_size["width"] if page.viewport_size else 0
    if page.evaluate("document.documentElement.scrollWidth") > width:
        found.append("the page is wider than the screen")
    return found


SHAPES = [pytest.param(False, True, id="desktop, dark"), in_proof(True, False, name="phone, light")]
"""Each size and each theme once: neither changes what the other does."""


def _everywhere(run: str) -> tuple[str, ...]:
    parts = ("?step=check-address", "?tab=steps", "?tab=data", "?tab=journal", "?tab=record", "?as=linear", "/compare")
    tabs = ("steps", "findings", "paths", "versions", "definition")
    return (*PAGES, *(f"/runs/{run}{one}" for one in parts), *(f"/workflows/order?tab={one}" for one in tabs))


def _all_pages(reader: Reader, run: str, check: Callable[[Page], list[str]]) -> dict[str, list[str]]:
    wrong: dict[str, list[str]] = {}
    for path in _everywhere(run):
        page = reader.open(path)
        expect(page.locator("main .skeleton")).to_have_count(0)
        if found := check(page):
            wrong[path] = found
    return wrong


@pytest.mark.parametrize(("phone", "dark"), SHAPES)
def test_every_page_has_names_contrast_and_fits(site: Site, reader: Read, phone: bool, dark: bool) -> None:
    wrong = _all_pages(reader(phone=phone, dark=dark), site.furnish(), _check)
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize(
    ("phone", "dark"), [pytest.param(True, False, id="phone, light"), in_proof(False, True, name="desktop, dark")]
)
def test_axe_finds_nothing_on_any_page(site: Site, reader: Read, phone: bool, dark: bool) -> None:
    _axe_source()
    wrong = _all_pages(reader(phone=phone, dark=dark), site.furnish(), _axe)
    assert not wrong, json.dumps(wrong, indent=1)


def test_axe_finds_what_is_wrong(reader: Read) -> None:
    """The check can fail: a button without a name is found."""
    page = reader().page
    assert _axe(page) == []
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [one.partition(":")[0] for one in _axe(page)] == ["axe button-name"]


@pytest.mark.proof
def test_every_page_can_be_read_at_200_percent(site: Site, reader: Read) -> None:
    """A zoom of 200 % halves the space that a page has: 1280 by 800 become 640 by 400."""
    shape = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}
    wrong = _all_pages(reader(**shape), site.furnish(), _check)
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.proof
def test_nothing_moves_for_readers_who_want_no_motion(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    person = reader(reduced_motion="reduce")
    moving = """() => document.getAnimations().filter((one) => one.effect.getComputedTiming().iterations === Infinity
      || one.effect.getComputedTiming().duration > 10).length"""
    for path in ("/runs", f"/runs/{run}", "/overview"):
        page = person.open(path)
        expect(page.locator("main .skeleton")).to_have_count(0)
        assert page.evaluate(moving) == 0, path
    page = person.open("/runs")
    site.start("payment")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    assert page.evaluate(moving) == 0
