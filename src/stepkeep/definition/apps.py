"""Imports the user's code: a module, a file, or installed packages with an entry point.

It only imports; the decorators in that code fill the registry. Errors in it are reported in one line. The command line
and workers call it at start.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from stepkeep.edges.safe_text import exception_message, exception_text, type_name
from stepkeep.kernel.errors import InvalidInput, StepkeepError

ENTRY_POINTS = "stepkeep.handlers"


def load_app(target: str) -> ModuleType:
    """Import `some.module` or `path/file.py`, and with it the handlers that it registers.

    The directory of a file, or the current one for a module, becomes importable, as it does for `python file.py`.
    """
    is_file = target.endswith(".py") or "/" in target
    return _import_file(target) if is_file else _import_module(target)


def load_entry_points() -> tuple[str, ...]:
    """Import the entry points of installed packages under `stepkeep.handlers`; returns their names."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value))
    for point in found:
        try:
            point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
            raise InvalidInput(f"entry point {point.name} ({point.value}): {_exception_line(problem)}") from None
    return tuple(point.name for point in found)


def _import_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
        if isinstance(problem, ModuleNotFoundError) and problem.name and f"{name}.".startswith(f"{problem.name}."):
            raise InvalidInput(
                f"there is no module {name}. Name a module that can be imported, or a file that ends in .py."
            ) from None
        raise InvalidInput(f"cannot import {name}: {_exception_line(problem)}") from None


def _import_file(target: str) -> ModuleType:
    path = Path(target)
    if not path.is_file():
        raise InvalidInput(f"there is no file {target}. Name a Python file, or a module that Python can import.")
    path = path.resolve()
    _make_importable(path.parent)
    try:
        return _load(path)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
        raise InvalidInput(f"cannot load {target}: {_exception_line(problem, path)}") from None


def _load(path: Path) -> ModuleType:
    name = path.stem
    found = importlib.util.find_spec(name) if name.isidentifier() and name not in sys.builtin_module_names else None
    if found is not None and found.origin is not None and Path(found.origin) == path:
        return importlib.import_module(name)
    # Another module has that name: keep both apart, under a name that is the same in every process.
    name = f"stepkeep_app_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _exception_line(problem: BaseException, path: Path | None = None) -> str:
    """An exception in one line: its type, its message, and the line of the user's code that raised it."""
    if isinstance(problem, StepkeepError):
        return f"{exception_message(problem) or type_name(problem)}{_where(problem, path)}"
    if isinstance(problem, SyntaxError) and type(problem) in (SyntaxError, IndentationError, TabError):
        said = f"{problem.msg} ({Path(problem.filename or '?').name}, line {problem.lineno})"
        return f"{type_name(problem)}: {said}"
    if isinstance(problem, SystemExit):
        status = exception_message(problem)
        return f"it ended the program (SystemExit{f' {status}' if status else ''}){_where(problem, path)}"
    return f"{exception_text(problem)}{_where(problem, path)}"


def _where(problem: BaseException, path: Path | None) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and Path(frame.filename) != Path(__file__)
    ]
    own = [frame for frame in frames if path is not None and Path(frame.filename) == path]
    chosen = (own or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in chosen)
