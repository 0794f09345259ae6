"""The five specifications as dialects: each has its own format, its own machines and its own names for a run."""
