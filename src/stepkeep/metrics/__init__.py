"""Prometheus metrics of a process: what it, its workers and its HTTP service counted, and what the database holds.

The counters themselves are in `operations.pipeline.measures`, `worker` and `api`; nothing here is called by them.
"""
