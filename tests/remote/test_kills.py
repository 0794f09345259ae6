"""`kill -9` of the service and of remote workers: nothing is lost, nothing counts twice."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

import stepkeep as sk
from tests.remote.handlers import flow
from tests.remote.processes import Site, outcome, started
from tests.suites import first_on
from tests.workbench import wait_until


def wait_for(path: Path) -> None:
    wait_until(path.exists, 60)


def is_taken_over(states: list[str]) -> bool:
    """One attempt succeeded, and those before it were lost; a worker that gets no CPU for a while loses some too."""
    return len(states) > 1 and {*states[:-1]} == {"lost"} and states[-1] == "succeeded"


@first_on("postgres")
def test_runs_end_once_although_the_service_and_a_worker_are_killed(database_url: str, tmp_path: Path) -> None:
    with Site(database_url, tmp_path) as place:
        service, address = place.service()
        first = place.worker(address)
        with place.client(address) as client:
            held = started(client, "gated")
            wait_for(place.marks / f"wait-{held}")
            runs = [started(client, "quick", key=f"k-{number}") for number in range(4)]
            assert outcome(client, runs[0])["state"] == "succeeded"
        service.end()
        first.says("the service does not answer")
        # While the service is away, the handler of the first worker returns: its report must wait for the next one.
        (place.marks / "go").touch()
        service, again = place.service(urlsplit(address).port or 0)
        assert again == address
        with place.client(address) as client:
            first.says("the service answers again")
            ends = [outcome(client, run) for run in (held, *runs)]
            assert [one["state"] for one in ends] == ["succeeded"] * 5
            # One worker alone, killed while it holds a step: another takes the step over after its lease.
            (place.marks / "go").unlink()
            orphan = started(client, "gated")
            wait_for(place.marks / f"wait-{orphan}")
            first.end()
            (place.marks / "go").touch()
            place.worker(address)
            assert outcome(client, orphan)["state"] == "succeeded"
            attempts = client.get(f"/runs/{orphan}/steps/wait/attempts").json()["attempts"]
            assert is_taken_over([one["state"] for one in attempts]), attempts
            for run in (held, *runs, orphan):
                verdict = client.get(f"/runs/{run}/certificate").json()
                assert verdict["ok"], verdict


@first_on("sqlite")
@pytest.mark.proof
def test_a_signal_lets_a_remote_worker_drain_and_hand_back(database_url: str, tmp_path: Path) -> None:
    with Site(database_url, tmp_path) as place:
        _, address = place.service()
        worker = place.worker(address, "--grace", "0")
        with place.client(address) as client:
            held = started(client, "gated")
            wait_for(place.marks / f"wait-{held}")
            worker.terminate()
            assert worker.wait(60) == 0
            worker.says("has drained and stopped")
            attempts = client.get(f"/runs/{held}/steps/wait/attempts").json()["attempts"]
            assert [one["state"] for one in attempts] == ["released"]
            (place.marks / "go").touch()
            place.worker(address)
            assert outcome(client, held)["state"] == "succeeded"


@first_on("sqlite")
def test_a_flow_survives_kills_of_its_remote_workers(database_url: str, tmp_path: Path) -> None:
    """One worker is killed inside the function of the flow, the next one in a call, while the flow is suspended."""
    with Site(database_url, tmp_path) as place:
        with sk.open(database_url, tenant="acme", actor="root") as engine:
            engine.publish(flow)
        _, address = place.service()
        first = place.worker(address)
        with place.client(address) as client:
            run = started(client, "fleet.flow")
            wait_for(place.marks / f"flow-{run}")
            first.end()
            (place.marks / "flow").touch()
            second = place.worker(address)
            wait_for(place.marks / f"fleet.flow[1]-{run}")
            step = f"/runs/{run}/steps/fleet.flow[2]"
            wait_until(lambda: client.get(step).json()["step"]["state"] == "succeeded")
            second.end()
            (place.marks / "go").touch()
            third = place.worker(address)
            found = outcome(client, run)
            assert found["state"] == "succeeded", found
            [once, held, long, last] = found["output"]  # type: ignore[misc]
            assert (once, held, long, last) == (1, second.pid, third.pid, 1)
            shown = client.get(f"/runs/{run}/steps/fleet.flow/attempts").json()["attempts"]
            # The second kill may have met the flow too, which the end of its quick call has woken.
            assert "lost" in [one["state"] for one in shown], shown
            calls = [(place.marks / f"fleet.flow[{number}]-{run}").read_text().split() for number in range(3)]
            # What was recorded is not called again; the call that was lost is.
            assert [len(pids) for pids in calls] == [1, 2, 1]
            verdict = client.get(f"/runs/{run}/certificate").json()
            assert verdict["ok"], verdict
