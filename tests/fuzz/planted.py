"""Targets with a defect planted in what they test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

import stepkeep as sk
from stepkeep.kernel.definition import Definition
from stepkeep_lab.fuzz.program import Said, run_command
from stepkeep_lab.fuzz.targets import addresses, definitions, expressions, signatures
from stepkeep_lab.fuzz.targets.api import Api
from stepkeep_lab.fuzz.targets.databases import Databases
from stepkeep_lab.fuzz.targets.handlers import Handlers, Misdeed
from stepkeep_lab.fuzz.targets.logs import Logs
from stepkeep_lab.fuzz.targets.terminal import Terminal

HERE = "tests.fuzz.planted"


class DefinitionsWithoutPlace(definitions.Definitions):
    def __init__(self) -> None:
        super().__init__(self.loaded)

    @staticmethod
    def loaded(case: definitions.Document) -> Definition:
        if "steps" not in case.text:
            raise KeyError("steps")
        return definitions.load(case)


class ExpressionsThatChangeTheirInput(expressions.Expressions):
    def __init__(self) -> None:
        super().__init__(self.evaluated)

    @staticmethod
    def evaluated(case: expressions.Evaluation) -> Any:
        if "input.m" in case.source and isinstance(case.context["input"], dict):
            case.context["input"]["m"] = 1
        return expressions.evaluate(case)


class ExpressionsWithoutBounds(expressions.Expressions):
    def __init__(self) -> None:
        super().__init__(lambda case: float("nan") if "/" in case.source else expressions.evaluate(case))


class SignaturesWithoutTheirBody(signatures.Signatures):
    def __init__(self) -> None:
        super().__init__(self.verified)

    @staticmethod
    def verified(case: signatures.Signed) -> Any:
        """Believes the headers of GitHub whatever the body is."""
        if case.scheme == signatures.GITHUB and len(case.headers) == 3:
            return "accepted"
        return signatures.verified(case)


class AddressesByTheirNames(addresses.Addresses):
    def __init__(self) -> None:
        super().__init__(self.checked)

    @staticmethod
    async def checked(case: addresses.Request) -> Any:
        """Checks the URL alone, and not what its name leads to."""
        found = await addresses.checked(msgspec.structs.replace(case, answers=("93.184.216.34",)))
        return msgspec.structs.replace(found, addresses=case.answers or found.addresses)


class LogsJudgedClean(Logs):
    def __init__(self) -> None:
        super().__init__(lambda arguments: Said(0, run_command(arguments).out, b""))


class ApiThatRaises(Api):
    def __init__(self) -> None:
        super().__init__({"engine.show": lambda **given: {}[given["run_id"]] if "run_id" in given else None})


class HandlersThatHoldTheirThread(Handlers):
    def __init__(self) -> None:
        super().__init__(self.misbehaved)

    @staticmethod
    def misbehaved(case: Misdeed, ctx: sk.Context) -> object:
        if case.mode == "thread":
            time.sleep(12)
        return {"mode": case.mode}


class DatabasesWithATraceback(Databases):
    def __init__(self) -> None:
        super().__init__(self.told)

    @staticmethod
    def told(arguments: Sequence[str]) -> Said:
        said = run_command(arguments)
        return (
            Said(said.status, said.out, said.err + b"\nTraceback (most recent call last):\n") if said.status else said
        )


class TerminalWithEscapes(Terminal):
    def __init__(self) -> None:
        super().__init__(self.told)

    @staticmethod
    def told(arguments: Sequence[str]) -> Said:
        said = run_command(arguments)
        return Said(said.status, said.out.replace(b"\\x1b", b"\x1b"), said.err.replace(b"\\x1b", b"\x1b"))
