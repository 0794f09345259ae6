"""Work on workers without the database, and the calls of their flows."""
