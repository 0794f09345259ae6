"""The laboratory: it tests the engine by simulation, model checking, planted bugs, real faults, fuzzing and benchmarks.

A distribution of its own, never part of the product's wheel. The product does not import it; its commands join the
command line through the entry point group `stepkeep.commands`.
"""
