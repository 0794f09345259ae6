-- Lock business keys to the end of the transaction, and read the clock after that; in one order, so that two transactions
-- cannot deadlock.
select pg_advisory_xact_lock(number), stepkeep_now() + $3::bigint
from (
    select distinct hashtextextended(format('%s %L %L', current_schema(), tenant, key), 1701) as number
    from unnest($1::text[], $2::text[]) as wanted (tenant, key)
    order by number
    offset 0
) as ordered
