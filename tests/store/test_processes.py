"""Several processes on one database, and what becomes of a store in a fork."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.store.test_contract_work import claim
from tests.store.values import key, new_run, ready, save

from stepkeep.store.protocol import Store

ROOT = Path(__file__).parents[2]


def start_claimer(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.claimer", url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_processes_on_one_database_skip_nothing_and_double_nothing(store: Store, url: str) -> None:
    runs = range(60)
    await save(store, *(new_run(n, [ready(n, no) for no in range(3)]) for n in runs))
    processes = [start_claimer(url) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    mine = await claim(store, 5)
    said = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]

    claims = [tuple(step) for lines in said for line in lines for step in json.loads(line)]
    claims += mine
    while left := await claim(store, 50):
        claims += left
    assert sorted(claims) == [(*key(n), no) for n in runs for no in range(3)]
    for n in runs:
        seqs = [entry.seq for entry in await store.read_journal(*key(n))]
        assert seqs == list(range(1, len(seqs) + 1))


FORKING = """
import asyncio, os, sys, warnings
from stepkeep.store.sqlite.store import SqliteStore

warnings.simplefilter("ignore")  # Python warns of threads at a fork, which is what this is about
path = sys.argv[1]
store = SqliteStore(path)

async def refused(work):
    try:
        await work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def child():
    print("old:", await refused(store.stuck_runs))
    print("new:", await refused(SqliteStore(path).open))
    await store.close()
    other = SqliteStore(path + ".other")
    await other.open()
    await other.migrate()
    print("other:", await other.stuck_runs())
    await other.close()

loop = asyncio.new_event_loop()
loop.run_until_complete(store.open())
loop.run_until_complete(store.migrate())
forked = os.fork()
if not forked:
    # The parent's loop is left as it is: its selector is shared, and closing it here would deafen the parent.
    asyncio.new_event_loop().run_until_complete(child())
    sys.stdout.flush()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
print("parent:", loop.run_until_complete(store.stuck_runs()))
loop.run_until_complete(store.close())
loop.close()
"""


def test_a_fork_refuses_the_file_that_was_open(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORKING, os.fspath(tmp_path / "app.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    old, new, other, parent = said.stdout.splitlines()
    assert "StoreUnavailable" in old
    assert "fork" in old
    assert "StoreUnavailable" in new
    assert "spawn" in new
    assert other == "other: []"
    assert parent == "parent: []"
