-- Tell whether migrations were ever applied, and how much room the database takes.
select to_regclass('migrations') is not null, pg_database_size(current_database())
