"""The campaign: one scenario after the other, each on a fresh database with its own processes, all from one seed.

It always continues: a scenario that breaks is a finding, one that cannot run here says why. The command line and the
tests call it, the tests with fewer scenarios and less time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.postgres import PostgresServer, PostgresUnavailable
from stepkeep_lab.torture.fleet import fleet
from stepkeep_lab.torture.scenarios import disks, kills, outages, pauses, strain
from stepkeep_lab.torture.servers import NotOurs, versions
from stepkeep_lab.torture.stage import Account, NotRun, Stage

STORES = ("sqlite", "postgres")
LIMIT = 300.0
"""Seconds beyond its own time after which a scenario is given up; that it had to be is a finding."""
THOROUGH_LIMIT = 3600.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A fault by name. `share` scales the time it is given; `lease` is that of all its runs."""

    strike: Callable[[Stage], Awaitable[None]]
    stores: tuple[str, ...] = STORES
    share: float = 1.0
    lease: str = "1s"

    @property
    def what(self) -> str:
        return (self.strike.__doc__ or "").strip().splitlines()[0]


SCENARIOS: dict[str, Scenario] = {
    "kill-storm": Scenario(strike=kills.kill_storm),
    "rollback-storm": Scenario(strike=kills.rollback_storm),
    "labelled-points": Scenario(strike=kills.labelled_points),
    "every-disk-call": Scenario(strike=disks.every_disk_call, stores=("sqlite",)),
    "disk-full": Scenario(strike=disks.disk_full, stores=("sqlite",)),
    "death-to-reclaim": Scenario(strike=kills.death_to_reclaim),
    "stopped-past-lease": Scenario(strike=pauses.stopped_past_lease),
    "clock-skew": Scenario(strike=pauses.clock_skew, lease="3s"),
    "server-crashes": Scenario(strike=outages.server_crashes, stores=("postgres",)),
    "sessions-ended": Scenario(strike=outages.sessions_ended, stores=("postgres",)),
    "commit-cuts": Scenario(strike=outages.commit_cuts, stores=("postgres",)),
    "through-a-pooler": Scenario(strike=outages.through_a_pooler, stores=("postgres",)),
    "rolling-restart": Scenario(strike=strain.rolling_restart),
    "old-snapshot": Scenario(strike=strain.old_snapshot, stores=("postgres",)),
    "overload": Scenario(strike=strain.overload),
    "soak": Scenario(strike=strain.soak, share=2.0),
}


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one campaign found."""

    seed: int
    seconds: float
    thorough: bool = False
    took: float
    versions: dict[str, str]
    accounts: tuple[Account, ...]

    @property
    def ok(self) -> bool:
        """Nothing failed, and something was run: a campaign of nothing proves nothing."""
        verdicts = {account.verdict for account in self.accounts}
        return "passed" in verdicts and "failed" not in verdicts

    def total(self, what: str) -> int:
        return sum(account.counts.get(what, 0) for account in self.accounts)


def chosen(only: Sequence[str]) -> dict[str, Scenario]:
    """The scenarios asked for, all of them by default."""
    unknown = [name for name in only if name not in SCENARIOS]
    if unknown:
        raise InvalidInput(f"there is no scenario {unknown[0]!r}. Choose from: {', '.join(SCENARIOS)}.")
    return {name: scenario for name, scenario in SCENARIOS.items() if not only or name in only}


def run_campaign(
    *,
    seed: int,
    seconds: float,
    thorough: bool = False,
    only: Sequence[str] = (),
    stores: Sequence[str] = STORES,
    told: Callable[[Account], None] = lambda account: None,
) -> Campaign:
    """Run the scenarios one after the other and keep account. Only loopback addresses and own files are touched."""
    if unknown := [store for store in stores if store not in STORES]:
        raise InvalidInput(f"there is no database {unknown[0]!r}. Choose from: {', '.join(STORES)}.")
    # Outages are the point here: what the store says of each is no news.
    logging.getLogger("stepkeep").addHandler(logging.NullHandler())
    began = time.monotonic()
    accounts: list[Account] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepkeep-torture-")))
        server, why = _own_server(stack) if "postgres" in stores else (None, "not asked for")
        for name, scenario in chosen(only).items():
            for store in (store for store in scenario.stores if store in stores):
                where = folder / f"{name}-{store}"
                where.mkdir()
                if store == "postgres" and server is None:
                    account = Account(scenario=name, store=store, verdict="not run", seconds=0.0, why=why)
                else:
                    account = _play(name, scenario, store, where, server, seed, seconds, thorough)
                accounts.append(account)
                told(account)
        found = versions(server)
    took = round(time.monotonic() - began, 1)
    return Campaign(seed=seed, seconds=seconds, thorough=thorough, took=took, versions=found, accounts=tuple(accounts))


def _own_server(stack: ExitStack) -> tuple[PostgresServer | None, str]:
    try:
        return stack.enter_context(PostgresServer()), ""
    except PostgresUnavailable as problem:
        return None, str(problem)


def _play(
    name: str,
    scenario: Scenario,
    store: str,
    folder: Path,
    server: PostgresServer | None,
    seed: int,
    seconds: float,
    thorough: bool,
) -> Account:
    began = time.monotonic()
    with ExitStack() as stack:
        if store == "postgres":
            assert server is not None
            url = stack.enter_context(server.fresh_database())
        else:
            server, url = None, f"sqlite:///{folder}/stepkeep.db"
        rng = random.Random(f"{seed} {name} {store}")  # noqa: S311 - repeatable on purpose
        given = seconds * scenario.share
        verdict, why, stage = asyncio.run(_strike(scenario, url, folder, rng, given, server, thorough))
    return Account(
        scenario=name,
        store=store,
        verdict=verdict,
        seconds=round(time.monotonic() - began, 1),
        counts=dict(sorted(stage.counts.items())) if stage else {},
        measures=stage.measures if stage else {},
        findings=tuple(stage.findings) if stage else (),
        why=why,
    )


async def _strike(
    scenario: Scenario,
    url: str,
    folder: Path,
    rng: random.Random,
    seconds: float,
    server: PostgresServer | None,
    thorough: bool,
) -> tuple[str, str, Stage | None]:
    async with fleet(folder / "processes.log") as crew:
        stage = Stage(
            url=url,
            folder=folder,
            crew=crew,
            rng=rng,
            seconds=seconds,
            server=server,
            lease=scenario.lease,
            thorough=thorough,
        )
        try:
            async with asyncio.timeout(seconds + (THOROUGH_LIMIT if thorough else LIMIT)):
                await stage.prepare()
                await scenario.strike(stage)
                await stage.reckon()
        except (NotRun, NotOurs) as problem:
            return "not run", str(problem), None
        except Exception:  # noqa: BLE001 - a scenario that breaks is a finding, and the campaign goes on
            stage.findings.append(f"the scenario broke:\n{traceback.format_exc(limit=-6)}")
        said = (folder / "processes.log").read_text(errors="replace")
        if "Traceback" in said:
            stage.findings.append(f"a process broke: {said[-2000:]}")
        return ("failed" if stage.findings else "passed"), "", stage
