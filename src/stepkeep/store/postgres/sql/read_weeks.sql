-- Count the missing weekly partitions of the journal, this one and this many ahead; and tell whether this role may
-- create them.
with this_week as (
    select date_trunc('week', to_timestamp(stepkeep_now() / 1000000.0) at time zone 'UTC') as monday
)
select
    count(*) filter (where to_regclass('journal_' || to_char(monday + ahead * interval '7 days', 'YYYYMMDD')) is null),
    coalesce(bool_or(pg_has_role(journal.relowner, 'USAGE')), false)
        and has_schema_privilege(current_schema(), 'CREATE')
from this_week
cross join generate_series(0, $1::int) as ahead
left join pg_class as journal on journal.oid = to_regclass('journal')
