"""Builds plain data from the events of a reader, with the position of every key and value.

One builder serves YAML and JSON, so that both have the same limits and refuse the same things. It never recurses,
because the input chooses the depth. `yaml_text` and `json_text` feed it; `document` reads the result.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn, TypeAlias

MAX_DEPTH: Final = 32
MAX_NODES: Final = 200_000
MAX_FAULTS: Final = 20
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1

PlainData: TypeAlias = "dict[str, PlainData] | list[PlainData] | str | int | float | bool | None"
Container: TypeAlias = "dict[str, PlainData] | list[PlainData]"
Scalar: TypeAlias = str | int | float | bool | None
DataPath: TypeAlias = tuple[str | int, ...]


class Positions:
    """Where a mapping or list starts, and where its keys and values do. A scalar's position is a bare offset."""

    __slots__ = ("items", "keys", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.items: dict[str | int, Place] = {}
        self.keys: dict[str | int, int] = {}


Place: TypeAlias = Positions | int


class Fault(NamedTuple):
    """One problem: its position in the text, its path in the data, the message, and the advice."""

    offset: int
    path: DataPath
    message: str
    hint: str


class BuildingStopped(Exception):
    """Reading cannot or need not continue; the builder's faults say why."""


class _Frame:
    __slots__ = ("data", "key", "part", "places")

    def __init__(self, data: Container, places: Positions, part: str | int | None) -> None:
        self.data, self.places, self.part = data, places, part
        self.key: str | None = None


class Builder:
    """Receives values in the order of the text: `open` and `close` around containers, `scalar` for the rest.

    In a mapping, every other scalar is a key. Faults are collected, so that one reading finds many.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.data: PlainData = None
        self.places: Place = 0
        self._frames: list[_Frame] = []
        self._nodes = 0

    @property
    def expects_key(self) -> bool:
        """Whether the next value is a key of the innermost mapping."""
        return bool(self._frames) and isinstance(self._frames[-1].data, dict) and self._frames[-1].key is None

    @property
    def innermost(self) -> type[dict[str, PlainData]] | type[list[PlainData]] | None:
        """The kind of container that the next value goes into, or None at the top."""
        return type(self._frames[-1].data) if self._frames else None

    def fault(self, offset: int, message: str, hint: str = "") -> None:
        """Record a problem here and continue; too many problems end the reading."""
        self.faults.append(Fault(offset, self._path(), message, hint))
        if len(self.faults) >= MAX_FAULTS:
            raise BuildingStopped

    def stop(self, offset: int, message: str, hint: str = "") -> NoReturn:
        """Record a problem here that makes everything after it meaningless."""
        self.fault(offset, message, hint)
        raise BuildingStopped

    def open(self, data: Container, offset: int) -> None:
        """Begin a mapping or a list."""
        if self.expects_key:
            self.stop(offset, "A key must be text.", "Write the key as one word, or in quotes.")
        if len(self._frames) >= MAX_DEPTH:
            self.stop(offset, f"This is nested more than {MAX_DEPTH} levels deep.", "Flatten the structure.")
        frame = _Frame(data, Positions(offset), self._part())
        self._put(data, frame.places, offset)
        self._frames.append(frame)

    def close(self) -> None:
        """End the innermost mapping or list."""
        self._frames.pop()

    def scalar(self, value: Scalar, offset: int) -> None:
        """Add a key or a value."""
        if type(value) is int and not MIN_INTEGER <= value <= MAX_INTEGER:
            self.fault(offset, "This number does not fit in 64 bits.", "Write it in quotes, as text.")
        elif type(value) is str:
            self._check_text(value, offset)
        if self.expects_key:
            self._key(value, offset)
        else:
            self._put(value, offset, offset)

    def _check_text(self, value: str, offset: int) -> None:
        if "\x00" in value:
            self.fault(offset, "This text holds a NUL character, which no database stores.", "Remove the escape.")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            self.fault(offset, "This text holds half of a surrogate pair.", "Write the whole character.")

    def _key(self, value: Scalar, offset: int) -> None:
        frame = self._frames[-1]
        if not isinstance(value, str):
            self.fault(offset, f"The key {_shown(value)} is not text.", "Put it in quotes.")
        key = value if isinstance(value, str) else str(value)
        if key in frame.places.keys:
            self.fault(offset, f"The key {_shown(key)} is here twice.", "Keep one of them.")
        frame.key = key
        frame.places.keys[key] = offset

    def _put(self, value: PlainData, place: Place, offset: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self.stop(offset, f"This holds more than {MAX_NODES} values.", "Split the definition.")
        if not self._frames:
            self.data, self.places = value, place
            return
        frame = self._frames[-1]
        if isinstance(frame.data, list):
            frame.places.items[len(frame.data)] = place
            frame.data.append(value)
        else:
            assert frame.key is not None, "a mapping is given a key before each value"
            frame.places.items[frame.key] = place
            frame.data[frame.key] = value
            frame.key = None

    def _part(self) -> str | int | None:
        if not self._frames:
            return None
        innermost = self._frames[-1]
        return len(innermost.data) if isinstance(innermost.data, list) else innermost.key

    def _path(self) -> DataPath:
        parts = [*(frame.part for frame in self._frames), self._part()]
        return tuple(part for part in parts if part is not None)


def _shown(value: Scalar) -> str:
    shown = value if isinstance(value, str) else "null" if value is None else str(value).lower()
    return f"`{shown[:60]}…`" if len(shown) > 60 else f"`{shown}`"
