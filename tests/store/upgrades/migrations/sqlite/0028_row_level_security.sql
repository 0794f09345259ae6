-- Nothing to change: a file has no roles. Row-level security is PostgreSQL's.

select 1;
