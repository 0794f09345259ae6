"""`stepkeep rerun`: a new run of a finished one's definition and input, executed here or left to the workers."""

from __future__ import annotations

from typing import Annotated

from stepkeep.cli.arguments import Apps, By, Capabilities, Concurrency, Input, RunId, opt
from stepkeep.cli.commands.continuing import Asked, DryRun, Key, Version, Wait, go_on, place_of, preview
from stepkeep.cli.policies import Policies
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput


def rerun(
    settings: Settings,
    policies: Policies,
    run: RunId,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    wait: Wait = None,
    key: Key = None,
    concurrency: Concurrency = 16,
    by: By = None,
    capability: Capabilities = None,
    from_step: Annotated[
        str | None, opt("--from", "STEP", "Run only this step and what depends on it; adopt the rest.")
    ] = None,
    version: Version = None,
    dry_run: DryRun = False,
) -> int:
    """Run a finished run again, as a new run that names the old one."""
    given = json_value(input, "--input")
    if version is not None and from_step is None:
        raise InvalidInput("--version goes with --from: without it, start a run of that version with `stepkeep start`.")
    asked = Asked(how="rerun", run=run, start=from_step, given=given, input=input, version=version, key=key, by=by)
    place = place_of(settings, app, wait, concurrency, capability)
    return preview(settings, asked) if dry_run else go_on(settings, policies, asked, place)
