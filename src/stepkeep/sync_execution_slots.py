from typing import Any

from stepkeep.execution_slots import AsyncSlots


class Slots:
    def __init__(self, core: AsyncSlots, call: Any) -> None:
        self._core, self._call = core, call

    def list(self):
        return self._call(self._core.list())

    def set(self, *a, **k):
        return self._call(self._core.set(*a, **k))

    def clear(self, *a, **k):
        return self._call(self._core.clear(*a, **k))
