"""What must be true of a run, by its rows and its journal. Kernel tests and the whole laboratory use it."""
