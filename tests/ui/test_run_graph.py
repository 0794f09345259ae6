"""The graph of a run as data: calls of a flow in the order in which they were made, elements below their owner; what
`patch` keeps of a page; values as text. In the browser, because browsers run it."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.ui.conftest import Read
from tests.ui.stage import Site

GRAPH = """async ({ base, steps, folds }) => {
  const { graphOf } = await import(base + "pages/run_graph.js");
  const { nodes, edges } = graphOf(steps, new Map(folds));
  return { nodes: nodes.map((one) => [one.id, one.label, one.sub, one.stack]),
           edges: edges.map((one) => `${one.from} > ${one.to}`) };
}"""


def step(name: str, kind: str = "python", made: int = 0, ended: int | None = None, **told: Any) -> dict[str, Any]:
    at = [f"2026-01-01T00:00:{second:02}Z" for second in (made, made if ended is None else ended)]
    return {
        "name": name,
        "kind": kind,
        "phase": "main",
        "call": None,
        "state": "succeeded" if ended is not None else "ready",
        "depends_on": [],
        "attempts": 1,
        "choices": [],
        "progress": None,
        "error": None,
        "states": [{"state": "ready", "at": at[0]}],
        "started_at": None,
        "ended_at": at[1] if ended is not None else None,
        **told,
    }


def base_of(page: Page) -> str:
    return str(page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')"))


def graph(page: Page, steps: list[dict[str, Any]], folds: dict[str, bool] | None = None) -> dict[str, Any]:
    given = {"base": base_of(page), "steps": steps, "folds": list((folds or {}).items())}
    return dict(page.evaluate(GRAPH, given))


def test_calls_of_a_flow_are_a_trace_with_names(reader: Read) -> None:
    calls = [
        step("agent[0]", made=1, ended=2, call="agent.think"),
        step("agent[1]", made=2, ended=5, call="agent.search"),
        step("agent[2]", made=2, ended=4, call="agent.search"),
        step("agent[3]", made=5, call="agent.write"),
    ]
    steps = [step("agent", "flow", state="running"), *calls, step("after", state="pending", depends_on=["agent"])]
    found = graph(reader().page, steps)
    assert found["nodes"][0] == ["agent", "agent", "flow · 4 calls", False]
    assert [label for _, label, *_ in found["nodes"][1:5]] == [
        "agent.think",
        "agent.search",
        "agent.search",
        "agent.write",
    ]
    assert sorted(found["edges"]) == [
        "agent > agent[0]",
        "agent[0] > agent[1]",
        "agent[0] > agent[2]",
        "agent[1] > agent[3]",
        "agent[2] > agent[3]",
        "agent[3] > after",
    ]


def test_the_step_after_a_map_follows_its_elements_and_many_are_folded(reader: Read) -> None:
    page = reader().page

    def mapped(count: int) -> list[dict[str, Any]]:
        items = [step(f"each[{place}]", ended=place + 1, made=place) for place in range(count)]
        items[0]["state"] = "failed"
        return [step("each", "map", ended=50), *items, step("after", depends_on=["each"])]

    few = graph(page, mapped(2))
    assert few["edges"] == ["each > each[0]", "each > each[1]", "each[0] > after", "each[1] > after"]
    many = graph(page, mapped(60))
    assert many["nodes"][0] == ["each", "each", "map · 60 of 60 · 1 failed", True]
    assert [one for one, *_ in many["nodes"]] == ["each", "after"]
    assert many["edges"] == ["each > after"]
    opened = graph(page, mapped(60), {"each": True})
    assert len(opened["nodes"]) == 42, "forty elements, their owner and the step behind it"
    assert "each[0]" in [one for one, *_ in opened["nodes"]], "what failed comes first"
    assert len(graph(page, mapped(2), {"each": False})["nodes"]) == 2


PATCH = """async (base) => {
  const { h, patch } = await import(base + "dom.js");
  const box = h("div"), told = [];
  document.body.append(box);
  const row = (key, text, said) => h("p", { key }, h("button", { on: { click: () => told.push(said) } }, text));
  const open = (text) => h("details", h("summary", text), h("input", { value: text }));
  patch(box, row("a", "A", "a1"), row("b", "B", "b1"), open("first"), h("section", { stamp: "1" }, "built"));
  const [a, b, details, section] = box.children;
  b.querySelector("button").focus();
  details.open = true;
  details.querySelector("input").value = "typed";
  section.append(" more");
  patch(box, row("c", "C", "c2"), row("b", "B2", "b2"), row("a", "A", "a2"), open("second"),
    h("section", { stamp: "1" }, "built"), null, "text");
  for (const one of box.querySelectorAll("button")) one.click();
  const same = [box.children[1] === b, box.children[2] === a, box.children[3] === details];
  const kept = [document.activeElement === b.querySelector("button"), details.open, section.textContent];
  patch(box, h("section", { stamp: "2" }, "another"), row("b", "B2", "b3"));
  const last = [box.children.length, box.children[0] === section, box.children[0].textContent, box.children[1] === b];
  patch(box);
  return { told, same, kept, last, left: box.childNodes.length };
}"""


def test_patch_keeps_focus_open_parts_and_what_was_built_and_uses_the_newest_listeners(reader: Read) -> None:
    page = reader().page
    found = page.evaluate(PATCH, base_of(page))
    assert found["told"] == ["c2", "b2", "a2"]
    assert found["same"] == [True, True, True]
    assert found["kept"] == [True, True, "built more"]
    assert found["last"] == [2, False, "another", True]
    assert found["left"] == 0


FORMAT = """async (base) => {
  const { span, counted, inert, line, costText, shortId } = await import(base + "format.js");
  return [span(0), span(0, true), span(950), span(950, true), span(9_949), span(59_400), span(61_000), span(600_000),
    span(3_660_000), span(90_000_000), counted(1, "run"), counted(2_000, "run"), inert("a\\u202eb"),
    line("x".repeat(9), 4), costText({ usd: 0.25, tokens: 1200 }), shortId("0123456789abcdef0123456789abcdef")];
}"""


def test_spans_counts_and_texts_are_written_for_people(reader: Read) -> None:
    page = reader().page
    assert page.evaluate(FORMAT, base_of(page)) == [
        *("0 ms", "0 s", "950 ms", "1 s", "9.9 s", "59 s", "1 min 1 s", "10 min", "1 h 1 min", "1 d 1 h"),
        *("1 run", "2,000 runs", "a⟨U+202E⟩b", "xxxx…", "$0.25, 1,200 tokens", "01234567…abcdef"),
    ]


def test_a_long_wait_is_short_in_the_timeline_until_the_reader_unfolds_it(site: Site, reader: Read) -> None:
    page = reader().page
    base = page.evaluate("document.querySelector('script[type=module]').src.replace(/app\\.js$/, '')")
    found = page.evaluate(
        """async (base) => {
          const { folded } = await import(base + "components/folding.js");
          const work = [{ from: 0, to: 10 }, { from: 5, to: 20 }, { from: 1000, to: 1020 }];
          const some = folded(work, 0, 1020, true), none = folded(work, 0, 1020, false);
          const busy = folded(work, 0, 50, true);
          const back = [0, 7, 20, 500, 1010, 1020].map((one) => Math.round(some.moment(some.place(one))));
          return { gaps: some.gaps.map((one) => [one.from, one.to]), back, wide: some.place(20) > 0.4,
            end: some.place(1020), plain: none.place(510), unfolded: none.gaps.length + busy.gaps.length,
            nothing: folded([], 0, 100, true).place(50) };
        }""",
        base,
    )
    assert found == {
        "gaps": [[20, 1000]],
        "back": [0, 7, 20, 500, 1010, 1020],
        "wide": True,
        "end": 1,
        "plain": 0.5,
        "unfolded": 0,
        "nothing": 0.5,
    }
    run = site.start("order", {"order": "A-1"})
    site.settle(run)
    page.goto(f"/ui/runs/{run}")
    folding = page.get_by_role("button", name="Fold waits")
    expect(folding).to_have_attribute("aria-pressed", "true")
    folding.click()
    expect(folding).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".ticks .fold")).to_have_count(0)
