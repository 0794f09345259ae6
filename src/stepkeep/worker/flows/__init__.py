"""Flows as code on a worker: coroutines that are replayed from recorded calls, and kept between suspensions."""
