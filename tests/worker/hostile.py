"""Exceptions, results and answers that user code can make and that nothing should trip over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepkeep.worker.answers import StepError


class SaysNothing(Exception):
    """A common slip: its text needs an argument that was not given."""

    def __str__(self) -> str:
        return str(self.args[1])


class RaisesItsLike(Exception):
    def __str__(self) -> str:
        raise RaisesItsLike


class LeavesTheProcess(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class AnswersEveryAttributeWithAnError(Exception):
    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


class Interrupts(Exception):
    def __getattribute__(self, name: str) -> object:
        raise KeyboardInterrupt


class HidesItsTraceback(Exception):
    @property
    def __traceback__(self) -> Any:
        raise SystemExit

    @property
    def __cause__(self) -> Any:
        raise SystemExit

    @property
    def __notes__(self) -> Any:
        raise SystemExit


class LiesAboutItsClass(Exception):
    @property
    def __class__(self) -> Any:
        return StepError


class CannotTellItsClass(Exception):
    @property
    def __class__(self) -> Any:
        raise SystemExit


class Text(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit

    def encode(self, *args: object) -> bytes:  # type: ignore[override]
        raise SystemExit

    def __format__(self, spec: str) -> str:
        raise SystemExit


class SaysOddText(Exception):
    def __str__(self) -> str:
        return Text("odd")


class SaysANumber(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Metaclass(type):
    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit


class HasAHostileClass(Exception, metaclass=Metaclass):
    pass


class Recursive(Exception):
    def __str__(self) -> str:
        return str(self)


class OddNumber(OSError):
    @property
    def errno(self) -> Any:  # type: ignore[override]
        raise SystemExit


class OddResponse(Exception):
    class response:  # noqa: N801 - as the attribute is named
        status_code = 503

        class headers:  # noqa: N801 - as the attribute is named
            @staticmethod
            def get(name: str) -> object:
                raise SystemExit


class OddStepError(StepError):
    """Forgets what makes it a StepError."""

    def __init__(self) -> None:
        Exception.__init__(self, "odd")


class SpoiltStepError(StepError):
    @property
    def category(self) -> Any:  # type: ignore[override]
        raise SystemExit

    @category.setter
    def category(self, value: object) -> None: ...

    def __str__(self) -> str:
        raise SystemExit


def long_chain() -> Exception:
    first: Exception = ValueError("the last of ten thousand")
    for _ in range(10_000):
        following = ValueError("again")
        following.__cause__ = first
        first = following
    return first


def circle() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


UNPRINTABLE: list[Callable[[], BaseException]] = [
    SaysNothing,
    RaisesItsLike,
    LeavesTheProcess,
    AnswersEveryAttributeWithAnError,
    Interrupts,
    HidesItsTraceback,
    LiesAboutItsClass,
    CannotTellItsClass,
    SaysOddText,
    SaysANumber,
    HasAHostileClass,
    Recursive,
    lambda: OddNumber(1, "odd"),
    lambda: ExceptionGroup("several", [SaysNothing(), ExceptionGroup("more", [LeavesTheProcess(), Interrupts()])]),
    lambda: BaseExceptionGroup("several", [SystemExit(1), CannotTellItsClass()]),
    long_chain,
    circle,
    lambda: ValueError("x" * 10_000_000),
    lambda: ValueError(Text("odd")),
    lambda: KeyError(SaysNothing()),
]


class SpoiltEquality:
    def __eq__(self, other: object) -> bool:
        raise SystemExit

    __hash__ = None  # type: ignore[assignment]


class HostileDump:
    def model_dump(self, mode: str) -> object:
        raise SystemExit(4)


class DumpsAnUnprintable:
    def model_dump(self, mode: str) -> object:
        class Sorry(TypeError):
            def __str__(self) -> str:
                raise KeyboardInterrupt

        raise Sorry


def cycle() -> object:
    found: list[object] = []
    found.append(found)
    return found


UNSTORABLE: list[Callable[[], object]] = [
    CannotTellItsClass,
    SpoiltEquality,
    HostileDump,
    DumpsAnUnprintable,
    cycle,
    object,
    lambda: float("nan"),
    lambda: {"a": b"\xff", 5: {1.5: object()}},
    lambda: Text("odd"),
    lambda: "x" * 1_000_000,
    lambda: "\ud800",
    lambda: "a\x00b",
    lambda: (n for n in range(3)),
]
