"""Real faults on real processes and databases, and the proof of what became of the work: `stepkeep lab torture`."""
