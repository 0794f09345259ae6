-- Find the schemas of this database that hold an installation, by a function that each has.
select nspname::text
from pg_proc
join pg_namespace on pg_namespace.oid = pronamespace
where proname = 'stepkeep_now'
order by nspname
