-- Read whether migrations were ever applied, the size of the database, and the current schema.
select to_regclass('migrations') is not null, pg_database_size(current_database()), current_schema()
