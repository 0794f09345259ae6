"""`stepkeep completion SHELL`: print the script that completes commands and options in a shell. Reads nothing."""

from __future__ import annotations

from typing import Annotated

from stepkeep.cli.arguments import arg
from stepkeep.cli.printer import answer, page
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

VARIABLE = "_STEPKEEP_COMPLETE"
"""Set by the scripts when a shell asks for completions."""
SHELLS = ("bash", "zsh", "fish", "powershell")


def completion(
    settings: Settings,
    shell: Annotated[str, arg("SHELL", "bash, zsh, fish or powershell.")],
) -> int:
    """Print the script that completes commands and options in a shell; load it where the shell starts.

    In bash: source <(stepkeep completion bash).
    """
    if shell not in SHELLS:
        raise InvalidInput(f"completion is known for {', '.join(SHELLS)}, not for {inert_line(shell, 40)}.")
    script = script_for(shell)
    if settings.json:
        answer({"completion": {"shell": shell, "script": script}})
    else:
        page(script)
    return SUCCEEDED


def script_for(shell: str) -> str:
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="stepkeep", complete_var=VARIABLE, shell=shell)


def prepare() -> None:
    """Make the program answer shells that ask for completions."""
    from typer._completion_classes import completion_init

    completion_init()
