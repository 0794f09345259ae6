"""The hunt: every planted bug in the stores' SQL must be found on a real database, within a limited number of seeds.

A bug counts only if the unchanged store passes the same checks to the same bound: that is tried first. Lock scenarios
run first (only PostgreSQL lets two transactions wait for each other), then differential seeds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.storecheck.databases import PostgresDatabases, SqliteDatabases, postgres_databases
from stepkeep_lab.storecheck.differential import compare
from stepkeep_lab.storecheck.mutants import MUTANTS, POSTGRES, SQLITE
from stepkeep_lab.storecheck.planting import SqlMutant, planted

STORES = (SQLITE, POSTGRES)
MOST_LIVES = 40
RIVALS, LIVES = "rivals", "lives"
TOGETHER = 5
"""This many bugs are hunted in one go by one of several processes, on one server."""


class Catch(msgspec.Struct, frozen=True, kw_only=True):
    """What the hunters came to on one store: which of them found a difference and what it was, or none."""

    scenes: int = 0
    lives: int = 0
    operations: int = 0
    hunter: str | None = None
    difference: str = ""
    seconds: float = 0.0


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How a planted bug fared."""

    name: str
    store: str
    file: str
    what: str
    catch: Catch

    @property
    def caught(self) -> bool:
        return self.catch.hunter is not None

    @property
    def after(self) -> str:
        """How much it took, in words."""
        if self.catch.hunter == RIVALS:
            return many(self.catch.scenes, "scene")
        return f"{many(self.catch.lives, 'life', 'lives')}, {many(self.catch.operations, 'operation')}"


class Hunt(msgspec.Struct, kw_only=True):
    """A whole hunt: what the clean stores came to, and every bug's score."""

    first: int
    most: int
    clean: dict[str, Catch] = {}
    scores: list[Score] = []
    seconds: float = 0.0

    @property
    def missed(self) -> list[str]:
        return [score.name for score in self.scores if not score.caught]

    @property
    def unsound(self) -> list[str]:
        """Stores that the hunters object to although nothing was planted; what they catch there proves nothing."""
        return [store for store, catch in self.clean.items() if catch.hunter is not None]

    @property
    def ok(self) -> bool:
        return not self.missed and not self.unsound


def hunt(
    names: Sequence[str] = (),
    *,
    stores: Sequence[str] = STORES,
    first: int = 0,
    most: int = MOST_LIVES,
    jobs: int = 1,
    told: Callable[[str, Catch | Score], None] = lambda what, found: None,
) -> Hunt:
    """Plant each bug in turn and let the hunters loose; `told` hears of each, and of the clean stores first."""
    chosen = choose(names, stores)
    began, found = time.monotonic(), Hunt(first=first, most=most)
    meant = [store for store in STORES if any(mutant.store == store for mutant in chosen)]
    tasks: list[Task] = [*((store, None) for store in meant), *((mutant.store, mutant) for mutant in chosen)]
    for (store, mutant), catch in _results(tasks, first, most, jobs):
        if mutant is None:
            found.clean[store] = catch
            told(store, catch)
        elif found.clean[store].hunter is None:
            score = Score(name=mutant.name, store=store, file=mutant.path, what=mutant.what, catch=catch)
            found.scores.append(score)
            told(mutant.name, score)
    found.seconds = time.monotonic() - began
    return found


Task = tuple[str, SqlMutant | None]
"""A store, and the bug to plant in it, or none."""


def _results(tasks: list[Task], first: int, most: int, jobs: int) -> Iterator[tuple[Task, Catch]]:
    """What the hunters came to on each, in order, made here or by `jobs` processes, each with its own bug."""
    work = partial(_seek_all, first, most)
    if jobs <= 1:
        yield from work(tasks)
        return
    parts = [tasks[place : place + TOGETHER] for place in range(0, len(tasks), TOGETHER)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for part in pool.map(partial(_listed, work), parts):
            yield from part


def _listed(work: Callable[[list[Task]], Iterator[tuple[Task, Catch]]], tasks: list[Task]) -> list[tuple[Task, Catch]]:
    return list(work(tasks))


def _seek_all(first: int, most: int, tasks: list[Task]) -> Iterator[tuple[Task, Catch]]:
    with _stage({store for store, _ in tasks}) as databases_of:
        for store, mutant in tasks:
            with planted(mutant) if mutant else nullcontext(), databases_of(store) as databases:
                catch = seek(databases, first, most)
            yield (store, mutant), catch


def choose(names: Sequence[str], stores: Sequence[str]) -> list[SqlMutant]:
    """The bugs meant; an unknown name is refused with those that there are."""
    for given, known in ((names, [mutant.name for mutant in MUTANTS]), (stores, list(STORES))):
        if unknown := sorted(set(given) - set(known)):
            raise InvalidInput(f"there is no {', '.join(unknown)} here; there are: {', '.join(known)}")
    return [one for one in MUTANTS if one.store in stores and (not names or one.name in names)]


def seek(databases: Databases, first: int, most: int) -> Catch:
    """Let the hunters loose on one kind of database, until one objects or all have had their turn."""
    began = time.monotonic()
    catch = _scenes(databases) if isinstance(databases, PostgresDatabases) else Catch()
    if catch.hunter is None:
        catch = _lives(databases, first, most, catch)
    return replace(catch, seconds=time.monotonic() - began)


def _scenes(databases: PostgresDatabases) -> Catch:
    from stepkeep_lab.storecheck.lock_scenarios import SCENES, stage

    for number, scene in enumerate(SCENES, 1):
        if problem := stage(scene, databases):
            return Catch(scenes=number, hunter=RIVALS, difference=problem)
    return Catch(scenes=len(SCENES))


def _lives(databases: Databases, first: int, most: int, before: Catch) -> Catch:
    operations = 0
    for lives in range(1, most + 1):
        lived = compare(first + lives - 1, databases)
        operations += lived.operations
        if lived.difference is not None:
            return replace(before, lives=lives, operations=operations, hunter=LIVES, difference=lived.difference)
    return replace(before, lives=most, operations=operations)


Databases = SqliteDatabases | PostgresDatabases


@contextmanager
def _stage(stores: set[str]) -> Iterator[Callable[[str], AbstractContextManager[Databases]]]:
    """A folder for files, and a server where one is needed; a new databases for every bug."""
    with (
        tempfile.TemporaryDirectory(prefix="stepkeep-") as folder,
        PostgresServer() if POSTGRES in stores else nullcontext() as server,
    ):

        def databases_of(store: str) -> AbstractContextManager[Databases]:
            if server is not None and store == POSTGRES:
                return postgres_databases(server)
            return nullcontext(SqliteDatabases(Path(folder)))

        yield databases_of


def many(number: int, one: str, more: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
