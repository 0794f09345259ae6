"""The page of runs: live, searched, filtered by its address, driven by keys and by mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from stepkeep.operations.runs import search
from tests.ui.conftest import Read
from tests.ui.stage import PATIENCE, Site

expect.set_options(timeout=PATIENCE)


def test_a_run_shows_up_and_changes_without_a_reload(site: Site, reader: Read) -> None:
    page = reader().page
    expect(page.get_by_text("No runs yet")).to_be_visible()
    run = site.start("order", {"order": "A-1"}, business_key="order-1", labels={"team": "shop"})
    row = page.locator(f"#row-{run}")
    expect(row).to_contain_text("Blocked")
    expect(row).to_contain_text("order-1")
    expect(row).to_contain_text("approval")
    site.run(site.engine.cancel(run))
    expect(row).to_contain_text("Cancelled")


def test_filters_live_in_the_address_and_survive_a_reload(site: Site, reader: Read) -> None:
    kept = site.start("payment", business_key="invoice-7")
    other = site.start("echo", {"value": 1})
    site.settle(other)
    page = reader().page
    page.get_by_role("group", name="State").get_by_role("button", name="Blocked").click()
    expect(page).to_have_url(re.compile(r"state=blocked"))
    expect(page.locator(f"#row-{kept}")).to_be_visible()
    expect(page.locator(f"#row-{other}")).to_have_count(0)
    page.get_by_label("Search runs").fill("invoice-7")
    expect(page).to_have_url(re.compile(r"text=invoice-7"))
    page.reload()
    expect(page.locator(f"#row-{kept}")).to_be_visible()
    expect(page.get_by_label("Search runs")).to_have_value("invoice-7")
    page.get_by_label("Search runs").fill("no such thing")
    expect(page.get_by_text("No run matches")).to_be_visible()


def test_a_search_that_ended_early_says_so_and_looks_further(
    site: Site, reader: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_IN_ORDER", 2)
    old = site.start("payment", business_key="needle-9")
    for _ in range(3):
        site.start("payment")
    page = reader().page
    page.get_by_label("Search runs").fill("needle-9")
    expect(page.get_by_text("No run matches so far")).to_be_visible()
    expect(page.get_by_text(re.compile(r"Looked at the newest 2 of \d+ runs, back to"))).to_be_visible()
    page.get_by_role("button", name="Look further").click()
    expect(page.locator(f"#row-{old}")).to_be_visible()
    monkeypatch.undo()
    page.get_by_label("Search runs").fill("needle")
    expect(page.get_by_text("Looked at the newest")).to_be_hidden()
    expect(page.locator(f"#row-{old}")).to_be_visible()


def test_a_part_of_the_time_is_chosen_by_mouse_and_by_keys(site: Site, reader: Read) -> None:
    site.settle(site.start("echo", {"value": 1}))
    page = reader().page
    bars = page.get_by_role("slider", name="Runs by start")
    box = bars.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"since=[^&]+&until="))
    expect(page.get_by_role("button", name="Remove the filter Since")).to_be_visible()
    expect(bars.locator(".chosen")).to_be_visible()
    for name in ("Since", "Until"):
        page.get_by_role("button", name=f"Remove the filter {name}").click()
    expect(page).not_to_have_url(re.compile("since="))
    bars.focus()
    for key in ("ArrowRight", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"since=[^&]+&until="))
    page.get_by_label("Window").select_option("1h")
    expect(page).to_have_url(re.compile(r"window=1h"))


def test_child_runs_are_left_out_of_the_list_and_of_what_is_done_to_all_of_it(site: Site, reader: Read) -> None:
    parent = site.start("parent")
    site.settle(parent)
    [child] = site.run(site.engine.show(parent)).run.children
    page = reader().page
    expect(page.locator(f"#row-{child.run_id}")).to_be_visible()
    page.get_by_role("button", name="No child runs").click()
    expect(page).to_have_url(re.compile(r"roots=true"))
    expect(page.locator(f"#row-{parent}")).to_be_visible()
    expect(page.locator(f"#row-{child.run_id}")).to_have_count(0)
    found = site.run(site.engine.runs(roots=True, limit=500))
    assert parent in (one.id for one in found.runs)
    assert child.run_id not in (one.id for one in found.runs)
    looked = site.run(site.engine.jobs.start("cancel", where={"roots": True, "text": child.run_id[:20]}, dry_run=True))
    assert child.run_id not in (looked.first or ())


@pytest.mark.proof
def test_a_view_is_saved_and_chosen_again(site: Site, reader: Read) -> None:
    page = reader().page
    page.get_by_role("group", name="State").get_by_role("button", name=re.compile("^Failed")).click()
    expect(page).to_have_url(re.compile(r"state=failed"))
    page.get_by_role("button", name="Save view").click()
    page.get_by_role("dialog").get_by_label("Name").fill("What broke")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.get_by_role("group", name="State").get_by_role("button", name="All").click()
    expect(page).not_to_have_url(re.compile(r"state="))
    page.get_by_label("Saved views").select_option("What broke")
    expect(page).to_have_url(re.compile(r"state=failed"))


def test_the_keyboard_goes_all_the_way(site: Site, reader: Read) -> None:
    run = site.start("payment")
    site.settle(run)
    page = reader().page
    expect(page.locator(f"#row-{run}")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search runs")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Search")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/runs/{run}"))
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill(run)
    expect(page.get_by_role("option", name=re.compile(run))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/runs/{run}"))


HEADINGS = {
    "r": "Runs", "a": "Approvals", "o": "Overview", "w": "Workflows", "k": "Workers", "t": "Triggers", "x": "Outbox",
    "p": "Policies", "y": "API keys", "u": "Users", "d": "Audit",
}  # fmt: skip
"""What `g` and a key lead to."""


@pytest.mark.proof
def test_every_page_is_reached_by_its_keys_and_explains_them(reader: Read) -> None:
    page = reader().page
    for key, heading in HEADINGS.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Find anything")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("link", name=heading.removeprefix("API ").title())).to_have_attribute(
            "aria-current", "page"
        )


@pytest.mark.proof
def test_a_page_is_opened_with_the_focus_behind_the_menu_and_a_dialog_gives_it_back(reader: Read) -> None:
    page = reader().open("/users")
    expect(page.get_by_role("heading", name="Users", level=1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Register a user")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Register a user")).to_be_focused()


@pytest.mark.proof
def test_many_runs_are_cancelled_after_a_preview_of_what_that_touches(site: Site, reader: Read) -> None:
    live = [site.start("payment", labels={"bulk": "yes"}) for _ in range(3)]
    ended = site.start("echo", {"value": 1}, labels={"bulk": "yes"})
    site.settle(ended)
    page = reader().open("/runs?label=bulk%3Dyes")
    expect(page.get_by_role("row")).to_have_count(5)
    page.get_by_label("Select all rows shown").check()
    page.get_by_role("region", name="Selected runs").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This will cancel 3 runs. 1 run is left as it is")
    dialog.get_by_role("button", name="Cancel 3 runs").click()
    for run in live:
        expect(page.locator(f"#row-{run}")).to_contain_text("Cancelled")
    assert site.settle(ended) == "succeeded"
    [job] = [one for one in site.run(site.engine.jobs.list())["jobs"] if one["runs"] == 3]
    assert (job["action"], job["state"], job["done"]) == ("cancel", "done", 3)


@pytest.mark.proof
def test_a_job_says_which_runs_it_left_as_they_are(site: Site, reader: Read) -> None:
    live = [site.start("payment", labels={"bulk": "late"}) for _ in range(2)]
    for run in live:
        site.settle(run)
    page = reader().open("/runs?label=bulk%3Dlate")
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_label("Select all rows shown").check()
    page.get_by_role("region", name="Selected runs").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel 2 runs")).to_be_visible()
    site.run(site.engine.send(live[0], "paid", {}))
    assert site.settle(live[0]) == "succeeded"
    dialog.get_by_role("button", name="Cancel 2 runs").click()
    expect(dialog.get_by_role("region", name="Runs of the job")).to_contain_text(live[0][:8])
    expect(page.locator(f"#row-{live[1]}")).to_contain_text("Cancelled")


@pytest.mark.proof
def test_a_run_is_started_with_the_input_that_its_workflow_declares(site: Site, reader: Read) -> None:
    page = reader().page
    page.get_by_role("button", name="Start a run").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Workflow").select_option("order")
    dialog.get_by_label("order", exact=True).fill("B-2")
    dialog.get_by_label("amount (optional)").fill("12")
    dialog.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="order", level=1)).to_be_visible()
    run = page.url.partition("/ui/runs/")[2]
    view = site.run(site.engine.show(run))
    assert view["run"]["input"] == {"order": "B-2", "amount": 12}


@pytest.mark.proof
def test_ten_thousand_rows_stay_a_few_elements(site: Site, reader: Read) -> None:
    page = reader().page
    module = page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')")
    found = page.evaluate(
        """async (base) => {
          const { createTable } = await import(base + "components/table.js");
          const { h } = await import(base + "dom.js");
          const rows = Array.from({ length: 10_000 }, (_, at) => ({ id: String(at) }));
          const table = createTable({
            name: "Many", key: (row) => row.id, version: () => 0, open: () => {}, card: (row) => row.id,
            columns: [{ id: "id", label: "Id", width: "1fr", cell: (row) => h("span", null, row.id) }],
            signal: new AbortController().signal, empty: () => h("p") });
          const box = h("div");
          Object.assign(box.style, { height: "400px", display: "flex" });
          document.body.append(box);
          box.append(table.element);
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const began = performance.now();
          table.show(rows, "many");
          const took = performance.now() - began;
          table.scroller.scrollTop = 1e9;
          await new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 50));
          const drawn = table.element.querySelectorAll(".gridrow");
          return { took, count: drawn.length, last: [...drawn].map((one) => one.id).sort().at(-1) };
        }""",
        module,
    )
    assert found["count"] < 60
    assert found["last"] == "row-9999"
