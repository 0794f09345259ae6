"""The client of a service, with the words of the engine: `stepkeep.open("https://…", key=…)` returns one.

`AsyncClient` is for programs with an event loop, `Client` for those without. Both raise the errors of the engine. A
method of the engine is one route; what needs the database itself (workers, pruning, a caller's transaction) is refused.
"""

from stepkeep.client.async_client import AsyncClient, PublishedWorkflow
from stepkeep.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "PublishedWorkflow"]
