"""An agent that thinks, asks for approval, uses a tool and thinks again, for at most 50 turns.

Each thought and each use of a tool is an element of one loop, so it is on record before the next one begins. A process
that is killed goes on where it stood: `python examples/agent_loop.py` again. Only the thought or the tool that was
under way runs once more, and the tool is given the same key, so that it does nothing twice.

`think` stands for a call of a language model, and `book` for a service on the network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import stepkeep as sk

TURNS = 50


def think(goal: dict[str, Any], done: list[dict[str, Any]]) -> dict[str, Any]:
    """What to do next: the call of a tool, or an answer. Every third seat is expensive, and takes approval."""
    seats = [one["seat"] for one in done if one["ok"]]
    refused = len(done) - len(seats)
    if len(done) >= goal["seats"]:
        return {"answer": f"booked {len(seats)} seats, {refused} refused"}
    seat = len(done) + 1
    return {"call": {"tool": "book", "seat": seat, "needs_approval": seat % 3 == 0}}


def book(ledger: str, seat: int, key: str) -> dict[str, Any]:
    """Book a seat in a ledger that knows its keys: a second request with the same key changes nothing."""
    entry = Path(ledger) / f"{key.replace(':', '-')}.json"
    if not entry.exists():
        entry.parent.mkdir(parents=True, exist_ok=True)
        made = entry.with_suffix(".new")
        made.write_text(json.dumps({"seat": seat}), encoding="utf-8")
        made.rename(entry)
    return {"seat": seat, "ok": True}


@sk.step("agent.go_on", timeout="2m", effect="write")
def go_on(ctx: sk.Context, goal: dict[str, Any], last: dict[str, Any] | None, index: int) -> Any:
    """One half of a turn: a thought, or the use of the tool that the thought before it asked for."""
    done = [] if last is None else last["done"]
    if last is None or last["call"] is None:
        thought = think(goal, done)
        return {"done": done, "call": thought.get("call"), "answer": thought.get("answer", "")}
    call = last["call"]
    if call["needs_approval"]:
        if ctx.woken_by is None:
            return sk.wait_for("approval", where=f"message.seat == {call['seat']}", timeout="1d")
        if ctx.woken_by.timed_out or not ctx.woken_by.payload["approved"]:
            return {"done": [*done, {"seat": call["seat"], "ok": False}], "call": None, "answer": ""}
    booked = book(goal["ledger"], call["seat"], ctx.idempotency_key)
    return {"done": [*done, booked], "call": None, "answer": ""}


agent = sk.Workflow("booking-agent", version=1, timeout="7d", lease="2s")
agent.step(
    "turn",
    go_on,
    inputs={"goal": agent.input, "last": agent.last, "index": agent.index},
    repeat={"until": agent.last.answer != "", "max": 2 * TURNS},
)


def main(database: str, goal: dict[str, Any]) -> str:
    """Work on the run of this goal until it has an answer. Approvals are asked for on the terminal."""
    with sk.open(database) as engine:
        result = engine.run(agent, goal, idempotency_key="booking-agent-1")
        while result.state == "blocked":
            seat = waiting_seat(engine, result.run_id)
            approved = input(f"Book seat {seat}? [y/n] ") == "y"
            engine.send(result.run_id, "approval", {"seat": seat, "approved": approved}, message_id=f"seat-{seat}")
            result = engine.work_on(result.run_id)
        return str(result.output["answer"])


def waiting_seat(engine: sk.Engine, run_id: str) -> int:
    """The seat that the run waits for an approval of: its last thought has it."""
    thoughts = [step.output for step in engine.show(run_id).steps if step.output and step.output.get("call")]
    return int(thoughts[-1]["call"]["seat"])


if __name__ == "__main__":
    print(main("sqlite:///.stepkeep/agent.db", {"seats": 5, "ledger": ".stepkeep/seats"}))  # noqa: T201
