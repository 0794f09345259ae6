-- Tell whether migrations were ever applied, how much room the database takes, and the schema in which names are found.
select to_regclass('migrations') is not null, pg_database_size(current_database()), current_schema()
