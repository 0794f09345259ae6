"""Runs whose plan has grown are shown in the words of every dialect: elements, cases, calls, children, added steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import stepkeep as sk
from stepkeep.dialects.registry import names

SHOWN = [name for name in names() if name != "native"]
undone: list[str] = []


@sk.step
def words_take_back(text: str) -> None:
    undone.append(text)


@sk.step(undo=words_take_back)
def words_say(text: str) -> dict[str, str]:
    return {"text": text}


@sk.step
def words_plan(text: str) -> Any:
    return sk.then({"name": "say", "uses": words_say, "with": {"text": text}}, output={})


@sk.step
def words_break() -> None:
    raise sk.fail("the last step is broken", category="conflict")


@sk.flow("words-flow", on_failure="compensate")
async def words_flow(ctx: sk.FlowContext, text: str) -> dict[str, Any]:
    await ctx.once("seen", dict)
    said = await ctx.step(words_say, f"{text} in a flow")
    return {"said": said, "child": await ctx.child("words-child", {"text": f"{text} in a child"})}


def test_every_dialect_shows_a_run_whose_plan_has_grown(tmp_path: Path) -> None:
    child = sk.Workflow("words-child", input=["text"], on_failure="compensate")
    child.step("say", words_say)
    whole = sk.Workflow("words-whole", input=["texts"], on_failure="compensate")
    each = whole.step("each", words_say, inputs={"text": whole.item}, map={"over": whole.input.texts})
    children = whole.workflow("children", "words-flow", inputs={"text": whole.item}, map={"over": whole.input.texts})
    one = whole.switch("one", whole.case("only", words_say, inputs={"text": "chosen"}))
    plan = whole.step("plan", words_plan, inputs={"text": "added"}, then={"max_steps": 3})
    whole.step("last", words_break, after=[each, children, one, plan])
    with sk.Engine(f"sqlite:///{tmp_path}/words.db") as engine:
        for workflow in (child, words_flow):
            engine.publish(workflow)
        result = engine.run(whole, {"texts": ["a", "b"]})
        assert result.state == "rolled_back"
        runs = [result.id, *(run["id"] for run in engine.runs(workflow="words-flow")["runs"])]
        grown = {"each[0]", "each[1]", "children[0]", "one[0]", "plan[0]"}
        for dialect in SHOWN:
            shown = [engine.show(run, as_=dialect) for run in runs]
            assert all(f"'{name}'" in str(shown[0]) or f"/{name}'" in str(shown[0]) for name in grown), dialect
        told = engine.show(result.id, as_="action")
        assert told["compensation"]["status"] == "complete"
        assert told["compensation"]["notCompensable"] == []
        assert {action["actionId"] for action in told["compensation"]["actions"]} >= grown
        assert "each" not in {effect["effectId"] for effect in told["plan"]["plannedEffects"]}
        stream = engine.show(result.id, as_="workstream")
        assert stream["workstream"]["derived_status"] == stream["workstream"]["status"] == "failed"
        assert grown < set(stream["dag"]["topological_order"])
