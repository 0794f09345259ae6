-- Read whether migrations were ever applied, the size of the database, and whether this role may use the schema; that is
-- null if there is no such schema.
select to_regclass('migrations') is not null, pg_database_size(current_database()),
    (select has_schema_privilege(oid, 'USAGE') from pg_namespace where nspname = $1)
