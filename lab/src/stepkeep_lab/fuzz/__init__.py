"""Fuzzing: random hostile input for each edge of the engine, and what must hold whatever comes in.

A target generates cases from a seed and a number, and checks each. `campaign` plays them in child processes under
limits, so that an abort or a hang is a finding and not the end. `stepkeep lab fuzz` and the tests call it.
"""
