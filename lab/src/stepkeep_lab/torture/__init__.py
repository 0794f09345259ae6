"""Real faults on real processes and databases, followed by an audit: `stepkeep lab torture`."""
