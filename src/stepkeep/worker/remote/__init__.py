"""A worker without a database: the same worker over the HTTP API of a service.

It replaces what a worker reads and writes (`transactor`), its registration (`membership`) and its notifications
(`notices`) by requests, and nothing else. `stepkeep worker --server` calls it.
"""
