"""The command line: an edge that calls operations and prints."""
