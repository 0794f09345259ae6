"""One decision: events in, rows and hops out. `decide` interprets events; the other modules are its parts."""
