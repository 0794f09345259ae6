"""The Python interface: one module per group of methods, for both forms, with and without an event loop."""

from stepkeep.engine.engine import AsyncEngine as AsyncEngine
from stepkeep.engine.engine import Engine as Engine
