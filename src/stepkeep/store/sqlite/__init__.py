"""The embedded store: one file, one writer thread, several readers."""
