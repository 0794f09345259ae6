"""One life of the agent of `examples/agent_loop.py`, which ends by `kill -9` at the first new point that it reaches.

The points are behind each thought and behind each use of a tool, before it is reported: the worst moment. `marks` keeps
those that were used up. Approvals are given here, each once. Prints the answer when a life reaches the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stepkeep as sk
from stepkeep.definition.python.handlers import load_app

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_loop.py"


def deadly(function: Callable[..., Any], marks: Path) -> Callable[..., Any]:
    """The same function, which kills its process after its effect, once for each of its arguments."""

    def do(*given: Any) -> Any:
        found = function(*given)
        point = marks / f"{function.__name__}-{len(given[1]) if isinstance(given[1], list) else given[1]}"
        if not point.exists():
            point.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return do


def main(database: str, ledger: str, marks: str, seats: int) -> None:
    example = load_app(str(EXAMPLE))
    vars(example)["think"] = deadly(example.think, Path(marks))
    vars(example)["book"] = deadly(example.book, Path(marks))
    with sk.Engine(database) as engine:
        result = engine.run(example.agent, {"seats": seats, "ledger": ledger}, idempotency_key="agent")
        while result.state == "blocked":
            seat = example.waiting_seat(engine, result.run_id)
            engine.send(result.run_id, "approval", {"seat": seat, "approved": seat % 2 == 1}, message_id=f"s{seat}")
            result = engine.work_on(result.run_id)
        print(result.run_id, result.state, result.output["answer"] if result.output else result.error)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
