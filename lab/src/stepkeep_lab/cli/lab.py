"""`stepkeep lab`: simulation and planted bugs are here, the other commands beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, overwrite, say, warn
from stepkeep.cli.settings import CommandNeeds, Settings, with_settings
from stepkeep_lab.cli.lab_ablation import ablation
from stepkeep_lab.cli.lab_campaign import campaign
from stepkeep_lab.cli.lab_check import check
from stepkeep_lab.cli.lab_forgeries import forgeries, packs
from stepkeep_lab.cli.lab_fuzz import fuzz
from stepkeep_lab.cli.lab_golden import golden
from stepkeep_lab.cli.lab_misdeeds import misdeeds
from stepkeep_lab.cli.lab_neighbour import neighbour
from stepkeep_lab.cli.lab_proof import proof
from stepkeep_lab.cli.lab_stores import stores
from stepkeep_lab.cli.lab_torture import torture
from stepkeep_lab.cli.lab_truth import truth
from stepkeep_lab.cli.lab_views import views
from stepkeep_lab.reports import commit

if TYPE_CHECKING:
    from stepkeep_lab.simulation.campaign import Campaign, Failure, Score

app = typer.Typer(
    help="Test the engine itself: simulation, planted bugs, model check, torture, fuzzing.", no_args_is_help=True
)

Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")]


def simulate(
    settings: Settings,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=LARGEST, help="How many seeds to play.")] = 200,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, max=LARGEST, help="Play seeds until there were this many runs instead."),
    ] = None,
    first: Annotated[int, typer.Option("--from", metavar="SEED", min=0, max=LARGEST, help="The first of them.")] = 0,
    changes: Annotated[
        str,
        typer.Option("--with", metavar="JSON", help="Fields of the scenario to set, as a replay command names them."),
    ] = "{}",
    jobs: Jobs = 1,
) -> int:
    """Play seeds: workers, people and faults on virtual time, every commit audited. Exit status 1 on a violation.

    The same seed always gives the same history. A seed that fails is made smaller, and the command that plays the
    smallest failing relative is printed.
    """
    import msgspec

    from stepkeep.kernel.errors import InvalidInput
    from stepkeep_lab.simulation.campaign import run_campaign

    try:
        given = msgspec.json.decode(changes, type=dict[str, object])
        most = seeds if runs is None else None
        played = run_campaign(most, runs=runs, first=first, changes=given, jobs=jobs, told=_progress(most, runs))
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as problem:
        raise InvalidInput(f"--with: {problem}") from None
    if settings.json:
        answer({"simulation": played.as_json()})
    else:
        _tell(played)
    return FAILED if played.failures else SUCCEEDED


def mutants(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this bug (repeatable).")
    ] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, max=LARGEST, help="Give up on a bug after this many seeds.")
    ] = 1000,
    jobs: Jobs = 1,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="Keep the scores here, and hunt what it lacks.")
    ] = None,
) -> int:
    """Plant known bugs in memory, one at a time, and see that the simulation catches each. Exit status 1 on a miss.

    With --report it hunts the bugs that the file does not have, and then those that were caught on other commits.
    Interrupted, it goes on where it left off.
    """
    from stepkeep.kernel.errors import InvalidInput
    from stepkeep_lab.simulation.campaign import hunt
    from stepkeep_lab.simulation.planted_report import hunt_on

    def told(score: Score) -> None:
        if not settings.json:
            _score(score)

    names = tuple(only or ())
    try:
        if report is None:
            scores: Sequence[Score] = hunt(names, most=most, jobs=jobs, told=told)
        else:
            scores = hunt_on(Path(report), commit=commit(), names=names, most=most, jobs=jobs, told=told).scores
    except ValueError as problem:
        raise InvalidInput(str(problem)) from None
    missed = [score.name for score in scores if score.seeds is None]
    if settings.json:
        import msgspec

        answer(
            {"mutants": {"caught": len(scores) - len(missed), "of": len(scores), "scores": msgspec.to_builtins(scores)}}
        )
    else:
        say(f"{len(scores) - len(missed)} of {len(scores)} planted bugs were caught")
    return FAILED if missed else SUCCEEDED


app.command("simulate")(with_settings(simulate, CommandNeeds.NOTHING))
app.command("mutants")(with_settings(mutants, CommandNeeds.NOTHING))
app.command("campaign")(with_settings(campaign, CommandNeeds.NOTHING))
app.command("stores")(with_settings(stores, CommandNeeds.NOTHING))
app.command("views")(with_settings(views, CommandNeeds.NOTHING))
app.command("truth")(with_settings(truth, CommandNeeds.NOTHING))
app.command("check")(with_settings(check, CommandNeeds.NOTHING))
app.command("torture")(with_settings(torture, CommandNeeds.NOTHING))
app.command("misdeeds")(with_settings(misdeeds, CommandNeeds.NOTHING))
app.command("fuzz")(with_settings(fuzz, CommandNeeds.NOTHING))
app.command("neighbour")(with_settings(neighbour, CommandNeeds.NOTHING))
app.command("forgeries")(with_settings(forgeries, CommandNeeds.NOTHING))
app.command("packs")(with_settings(packs, CommandNeeds.NOTHING))
app.command("ablation")(with_settings(ablation, CommandNeeds.NOTHING))
app.command("proof")(with_settings(proof, CommandNeeds.NOTHING))
app.add_typer(golden, name="golden")


class _progress:  # noqa: N801 - reads as a verb where it is used
    """Tells people how far a campaign is: on a terminal in place, elsewhere ten times at most."""

    def __init__(self, seeds: int | None, runs: int | None) -> None:
        self._seeds, self._runs, self._tenth = seeds, runs, 0

    def __call__(self, campaign: Campaign) -> None:
        seeds, runs = (_of(campaign.seeds, self._seeds), _of(campaign.runs, self._runs))
        told = f"{seeds} seeds, {runs} runs, {len(campaign.failures)} failed"
        part = campaign.seeds / self._seeds if self._seeds else campaign.runs / (self._runs or 1)
        if sys.stderr.isatty():
            overwrite(told, last=part >= 1)
        elif int(part * 10) > self._tenth:
            self._tenth = int(part * 10)
            warn(told)


def _of(count: int, wanted: int | None) -> str:
    return f"{count:,}" if wanted is None else f"{count:,} of {wanted:,}"


def _tell(campaign: Campaign) -> None:
    hours = campaign.virtual_seconds / 3600
    say(f"{campaign.seeds:,} seeds, {campaign.runs:,} runs, {hours:.1f} virtual hours in {campaign.seconds:.1f} s")
    say(f"formats:  {_counts(campaign.written_in)}")
    say(f"ended:    {_counts(campaign.ended)}")
    say(f"faults:   {_counts(campaign.faults)}")
    say(f"refusals: {_counts(campaign.refusals)}")
    say(f"met:      {_counts(campaign.met)}")
    say("everything that can be reached was" if not campaign.unreached else "never reached:")
    for what in campaign.unreached:
        say(f"  {what}")
    for failure in campaign.failures:
        _failure(failure)
    say("no violation" if not campaign.failures else f"{len(campaign.failures)} seeds FAILED")


def _failure(failure: Failure) -> None:
    say(f"seed {failure.seed} FAILED; play it again:  {failure.command}")
    for violation in failure.violations[:10]:
        say(f"  {violation}")
    if failure.shrunk_command != failure.command:
        say(f"  smaller:  {failure.shrunk_command}")
        for violation in failure.shrunk[:10]:
            say(f"    {violation}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in sorted(counts)) or "none"


def _score(score: Score) -> None:
    caught = "MISSED" if score.seeds is None else f"after {score.seeds:>3} seeds"
    say(f"{score.name:<22} {caught:<16} {score.what}")
