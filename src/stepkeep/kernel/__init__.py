"""States, tables, plan and `decide`: from a snapshot and events to a decision. No clock, no randomness, no I/O."""
