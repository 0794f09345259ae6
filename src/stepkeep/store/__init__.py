"""What remembers and never decides: one protocol, one folder per database, one verb per SQL file."""
