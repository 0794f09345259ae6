"""Targets with a defect planted in what they test."""

from __future__ import annotations

from typing import Any

from stepkeep.fuzz.program import Said, run_command
from stepkeep.fuzz.targets import definitions, expressions
from stepkeep.fuzz.targets.api import Api
from stepkeep.fuzz.targets.logs import Logs
from stepkeep.kernel.definition import Definition

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


class LogsJudgedClean(Logs):
    def __init__(self) -> None:
        super().__init__(lambda arguments: Said(0, run_command(arguments).out, b""))


class ApiThatRaises(Api):
    def __init__(self) -> None:
        super().__init__({"engine.show": lambda **given: {}[given["run_id"]] if "run_id" in given else None})
