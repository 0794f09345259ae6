"""What is installed for users holds no laboratory, and the laboratory's commands come and go with its distribution."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LABORATORY = {"bench", "fuzz", "modelcheck", "simulation", "storecheck", "torture"}


def test_the_product_holds_no_laboratory() -> None:
    packages = {path.name for path in (ROOT / "src" / "stepkeep").iterdir() if path.is_dir()}
    assert not packages & LABORATORY
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["packages"] == ["src/stepkeep"]


def test_without_the_laboratory_the_program_has_all_its_own_commands_and_no_others() -> None:
    hidden = (
        "import importlib.metadata as metadata, sys\n"
        "metadata.entry_points = lambda **asked: ()\n"
        "from stepkeep.cli.main import app\n"
        "import typer\n"
        "names = set(typer.main.get_command(app).commands)\n"
        "assert not {'lab', 'bench'} & names, names\n"
        "assert {'run', 'worker', 'show', 'db', 'log'} <= names\n"
        "assert not [name for name in sys.modules if name.startswith('stepkeep_lab')]\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
