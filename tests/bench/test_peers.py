"""Peers are what their files say; one that cannot be had is absent with a reason, and nothing is made up for it."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import msgspec
import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench.campaign import Ask, run_campaign
from stepkeep_lab.bench.ground import NotMeasured
from stepkeep_lab.bench.peers import (
    Environment,
    Peer,
    Task,
    account_of,
    find_peers,
    last_words,
    prepare,
    read_peer,
    run_peer,
)

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
PEERS = find_peers(FOLDER)


def named(peer: Peer) -> str:
    return peer.title


def scripted(tmp_path: Path, body: str) -> Peer:
    """A peer whose file does what a test wants."""
    file = tmp_path / "scripted_peer.py"
    file.write_text(body, encoding="utf-8")
    return Peer(file=file, title="Scripted", package="none", dependencies=(), stores=("own",), runs={1: 1})


def asked(peer: Peer, tmp_path: Path) -> object:
    here = Environment(python=Path(sys.executable), npm=tmp_path, version="0")
    task = Task(store="own", url="", folder=str(tmp_path), npm="", works=((1, 1),), probes=1)
    return run_peer(peer, here, task)


def has_ended(pid: int) -> bool:
    """Whether a process is gone; one that was killed may take a moment."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 30.0)[0])
    finally:
        os.close(watched)


def test_the_peers_are_those_that_are_documented() -> None:
    assert sorted(map(named, PEERS)) == ["Absurd", "DBOS", "PgQueuer", "Prefect", "Procrastinate", "Restate"]


@pytest.mark.parametrize("peer", PEERS, ids=named)
def test_a_peer_says_what_it_needs_and_runs_every_shape(peer: Peer) -> None:
    assert set(peer.runs) == {1, 3, 10}
    assert set(peer.stores) <= {"postgres", "sqlite", "own"}
    assert any(peer.package in needed for needed in peer.dependencies)
    compile(peer.file.read_text(encoding="utf-8"), peer.file.name, "exec")


@pytest.mark.parametrize("peer", PEERS, ids=named)
def test_a_peer_whose_environment_cannot_be_made_says_so(peer: Peer, tmp_path: Path) -> None:
    in_the_way = tmp_path / "in-the-way"
    in_the_way.write_text("a file where a folder should be", encoding="utf-8")
    with pytest.raises(NotMeasured, match="no environment can be made") as said:
        prepare(peer, in_the_way)
    assert str(tmp_path) not in str(said.value)


def test_a_campaign_goes_on_without_the_peers_that_are_absent(tmp_path: Path) -> None:
    in_the_way = tmp_path / "in-the-way"
    in_the_way.write_text("a file where a folder should be", encoding="utf-8")
    ask = Ask(peers=True, only=("1-step runs",), stores=("sqlite",), rounds=1, runs=3)
    found = run_campaign(ask, peers_dir=in_the_way)
    ours, *theirs = found.measurements
    assert (ours.subject, len(ours.rounds)) == ("stepkeep", 1)
    assert {each.subject for each in theirs} == {"DBOS", "Prefect", "Restate"}
    assert all(not each.rounds and each.why.startswith("absent: ") for each in theirs)


def test_an_answer_becomes_figures(tmp_path: Path) -> None:
    said = [
        b'{"versions": {"server": "1.2"}}',
        b'{"steps": 3, "runs": 50, "seconds": 2.0}',
        msgspec.json.encode({"latencies_ms": [float(value) for value in range(1, 101)]}),
    ]
    account = account_of(said)
    assert account.works == {3: {"steps_per_second": 75.0, "runs_per_second": 25.0}}
    assert account.latency == {"p50_ms": 50.0, "p99_ms": 99.0}
    assert account.versions == {"server": "1.2"}


def test_a_peer_that_fails_gives_its_last_words_without_addresses(tmp_path: Path) -> None:
    peer = scripted(tmp_path, "raise SystemExit('cannot reach https://example.org/simple from /home/me/.cache')")
    with pytest.raises(NotMeasured, match=r"status 1: cannot reach … from …"):
        asked(peer, tmp_path)


def test_what_a_peer_started_does_not_outlive_it(tmp_path: Path) -> None:
    body = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=2)
pathlib.Path("child").write_text(str(child.pid))
"""
    asked(scripted(tmp_path, body), tmp_path)
    assert has_ended(int((tmp_path / "child").read_text(encoding="ascii")))


def test_a_file_without_metadata_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd_peer.py"
    file.write_text("print('hello')", encoding="utf-8")
    with pytest.raises(InvalidInput, match="odd_peer"):
        read_peer(file)


def test_silence_is_called_silence() -> None:
    assert last_words(" \n\n") == "it said nothing"
