-- Tell how much room the database takes.
select pg_database_size(current_database())
