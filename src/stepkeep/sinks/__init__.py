"""Where events go when they leave Stepkeep: one interface, one module for each kind of sink.

`interface` has the values and the contract of a sink. `registry` finds a kind by its name: the kinds of this package,
and those that other distributions add through the entry point group `stepkeep.sinks`. `event` is what a sink is given.
"""
