"""The command line: calls operations and prints. It decides nothing and writes no SQL."""
