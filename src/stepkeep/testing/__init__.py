"""Help for testing workflows and for running Stepkeep against a real database.

This package is for tests, benchmarks and demos; the engine itself never imports it.
"""
