"""The store on PostgreSQL: asyncpg, arrays and one SQL statement per file."""
