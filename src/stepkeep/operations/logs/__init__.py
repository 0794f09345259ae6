"""The record outside the database: logs, archives, retention, and the state files of seed 004."""
