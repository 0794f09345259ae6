"""Loads and stores rows and decides nothing: one contract, one folder per database, one statement per SQL file."""
