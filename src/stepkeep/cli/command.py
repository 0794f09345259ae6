"""Makes commands: of a function, or of an operation's row and a renderer of its answer.

A command of an operation has the arguments of the row: types, bounds and defaults are the row's; the table beside the
renderer has the words in which people read them. Signatures are made when a command is called or explains itself,
because rows are in the engine, which the list of commands must not load. Modules of `commands` call it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import inspect as types

from stepkeep.cli.answering import Words, find_run, print_answer
from stepkeep.cli.arguments import BY, LARGEST, RUN, arg, opt
from stepkeep.cli.settings import CommandNeeds, Settings, with_settings

if TYPE_CHECKING:
    from stepkeep.operations.operation import Operation

NOTHING = inspect.Parameter.empty
Render = Callable[[Any, "CommandValues"], Words]


GROUPS: dict[str, Commands] = {}
"""Commands under one word, by the word."""


class CommandValues:
    """What was typed, for a renderer: `asked["name"]` is an argument, by its name in Python."""

    def __init__(self, settings: Settings, given: Mapping[str, Any]) -> None:
        self.settings, self._given = settings, given

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def command(self, *words: str) -> str:
        """A command line with the same place, tenant and key."""
        return self.settings.command(*words)


class CliCommand:
    """What typer calls. Its signature is made when it is asked for."""

    def __init__(self, name: str, doc: str | None, make: Callable[[], Callable[..., int]], needs: CommandNeeds) -> None:
        self._make, self._needs = make, needs
        self.__name__, self.__doc__, self.__annotations__ = name, doc, {}

    @cached_property
    def made(self) -> Callable[..., int]:
        made = with_settings(self._make(), self._needs)
        for one in inspect.signature(made).parameters.values():
            for info in getattr(one.annotation, "__metadata__", ()):
                if place := getattr(info, "bounds_of", ""):
                    name, _, argument = place.rpartition(" ")
                    vars(info).update(_plain(row_of(name), argument)[1])
        return made

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.made)

    def __call__(self, **given: Any) -> int:
        return self.made(**given)


class Commands:
    """Commands under one word, such as `stepkeep slots …`; or without one, those of the program itself."""

    def __init__(self, word: str = "", help: str = "") -> None:  # noqa: A002 - typer's own word
        self.app = typer.Typer(help=help, no_args_is_help=True)
        self.made: dict[str, CliCommand] = {}
        if word:
            GROUPS[word] = self

    def command(
        self, word: str, needs: CommandNeeds = CommandNeeds.EITHER, *, policies: bool = False
    ) -> Callable[[Callable[..., int]], Callable[..., int]]:
        """A function is the command: its first parameter is Settings, with `policies` the second is Policies."""

        def add(function: Callable[..., int]) -> Callable[..., int]:
            def make() -> Callable[..., int]:
                if not policies:
                    return function
                from stepkeep.cli.policies import with_policies

                return with_policies(function)

            self._add(word, CliCommand(function.__name__, function.__doc__, make, needs))
            return function

        return add

    def operation(
        self,
        word: str,
        name: str,
        says: str | None = None,
        /,
        *,
        under: str | None = None,
        fails: Callable[[Any], Any] | None = None,
        creates: bool = False,
        recorded: bool = False,
        shaped: Callable[[Any, CommandValues], Any] | None = None,
        needs: CommandNeeds = CommandNeeds.EITHER,
        **table: Any,
    ) -> Callable[[Render], Render]:
        """A function renders the answer of an operation; its docstring, or `says`, explains the command.

        `table` has an `arg` or an `opt` for arguments of the operation whose words differ from those of the row; one
        that is None is not offered. `recorded`: with the decision, the run as it then stands. `shaped` makes
        what is printed of the answer. The rest is as in `print_answer`."""

        def add(render: Render) -> Render:
            telling = {"under": under, "fails": fails, "creates": creates}

            def make() -> Callable[..., int]:
                return _derived(name, render, table, recorded, shaped, telling)

            self._add(word, CliCommand(word, says or render.__doc__, make, needs))
            return render

        return add

    def _add(self, word: str, made: CliCommand) -> None:
        self.made[word] = made
        self.app.command(word)(made)


program = Commands()
"""The commands of the program itself. `main` gives each its place."""


def row_of(name: str) -> Operation:
    """The row of an operation."""
    import stepkeep.engine  # noqa: F401 - whose methods have the rows
    from stepkeep.operations.operation import CATALOGUE

    return CATALOGUE[name]


def _derived(
    name: str,
    render: Render,
    table: Mapping[str, Any],
    recorded: bool,
    shaped: Callable[[Any, CommandValues], Any] | None,
    telling: Mapping[str, Any],
) -> Callable[..., int]:
    """The function of a command that is an operation."""
    row = row_of(name)
    infos = {one: _info(row, one, table.get(one)) for one in _ordered(row, table)}
    typed = {one: info.typed_as or one for one, info in infos.items()}

    def command(settings: Settings, **given: Any) -> int:
        named = {one: given[typed[one]] for one in infos}
        asked = CommandValues(settings, named)
        values = _values(row, infos, named)

        async def work(engine: Any) -> Any:
            for one in values.keys() & (one for one, info in infos.items() if info.is_run):
                values[one] = await find_run(engine, values[one])
            found = await row.called_on(engine, values)
            if recorded:
                return {"decision": found, **await engine.show(values["run_id"])}
            return found if shaped is None else shaped(found, asked)

        return print_answer(settings, work, lambda found: render(found, asked), **telling)

    parameters = [_parameter(row, one, info, typed[one]) for one, info in infos.items()]
    settings = inspect.Parameter("settings", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown: Any = command
    shown.__signature__ = inspect.Signature([settings, *parameters])
    return command


def _values(row: Operation, infos: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the operation that were typed, read where the table says how."""
    given = {one: value for one, value in named.items() if value is not None or row.parameters[one].is_required}
    return {one: info.reads(given[one], _shown(info)) if (info := infos[one]).reads else given[one] for one in given}


def _ordered(row: Operation, table: Mapping[str, Any]) -> list[str]:
    """The arguments in the order of the row; those of the table among themselves in its order."""
    offered = [one for one in row.parameters if one not in table or table[one] is not None]
    chosen = iter([one for one in table if one in offered])
    return [next(chosen) if one in table else one for one in offered]


def _info(row: Operation, name: str, said: Any) -> Any:
    """How an argument is typed: as the table says, or as the row does."""
    if said is not None:
        return said
    if name in ("by", "run_id"):
        return BY if name == "by" else RUN
    kind, _, described = _plain(row, name)
    word = name.strip("_").replace("_", "-")
    if row.parameters[name].is_required:
        return arg(word.upper(), described)
    return opt(f"--{word}", *([] if kind in (bool, int, float) else [word.upper()]), described)


def _parameter(row: Operation, name: str, info: Any, typed: str) -> inspect.Parameter:
    kind, bounds, _ = _plain(row, name)
    info, kind = copy.copy(info), info.kind or kind
    vars(info).update(bounds)
    default = row.signature.parameters[name].default if info.by_default is NOTHING else info.by_default
    if isinstance(default, tuple):
        default = None
    annotation = kind if default is not None else kind | None
    return inspect.Parameter(
        typed, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, info]
    )


def _plain(row: Operation, name: str) -> tuple[Any, dict[str, Any], str]:
    """What a command takes for an argument, its bounds and description. What is no number is checked by the row."""
    found, said = types.type_info(row.accepts(name)), ""
    while isinstance(found, types.Metadata | types.UnionType):
        if isinstance(found, types.Metadata):
            said = said or (found.extra_json_schema or {}).get("description", "")
            found = found.type
        else:
            found = next(one for one in found.types if not isinstance(one, types.NoneType))
    match found:
        case types.IntType() | types.FloatType():
            bounds = {"min": found.ge, "max": LARGEST if found.le is None else found.le}
            return (int if isinstance(found, types.IntType) else float), bounds, said
        case types.BoolType():
            return bool, {}, said
        case types.ListType() | types.VarTupleType():
            return list[str], {}, said
    return str, {}, said


def _shown(info: Any) -> str:
    """The name of an option or argument, for refusals."""
    return str(info.default if isinstance(info.default, str) else info.metavar)
