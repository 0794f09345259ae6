"""The way of every change: load on a basis, decide, write; group commit, memory, clock and starts."""
