"""Stores rows and decides nothing: one protocol, one folder per database, one statement per SQL file."""
