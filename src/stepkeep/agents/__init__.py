"""Adapters for agent frameworks: what an agent of theirs does is recorded by the step or flow that runs it.

One module per framework, each behind an extra of its name. They call `sk.current()` and what the contexts offer, and
nothing else of the engine.
"""
