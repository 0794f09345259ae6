"""States, tables, plan and `decide`. Pure: no I/O, no clock, no randomness; the same input gives the same decision."""
