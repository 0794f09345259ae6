"""One attempt: claimed, prepared, run, classified, reported."""
