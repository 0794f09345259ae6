"""Stepkeep, a durable workflow engine for Python."""
