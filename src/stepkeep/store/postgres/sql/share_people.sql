-- Share the people of tenants to the end of the transaction, so that none of them changes before that; and read the clock
-- after that.
select pg_advisory_xact_lock_shared(number), stepkeep_now() + $2::bigint
from (
    select distinct hashtextextended(format('people %s %L', current_schema(), tenant), 1701) as number
    from unnest($1::text[]) as wanted (tenant)
    order by number
    offset 0
) as ordered
