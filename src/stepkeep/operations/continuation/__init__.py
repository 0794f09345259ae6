"""Runs that go on: retry, rerun, fork, migration, rollback, and jobs over many runs."""
