"""The pure heart: states, tables, plan, decide. No I/O, no clock, no randomness; same input, same decision."""
