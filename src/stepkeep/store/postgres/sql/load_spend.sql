-- Sum what attempts of the tenant $1 cost that ended after $2, by workflow. It takes no lock.
select spent.workflow, coalesce(sum((spent.cost ->> 'usd')::float8), 0), coalesce(sum((spent.cost ->> 'tokens')::float8), 0),
    count(*)
from (
    select detail.workflow, convert_from(attempt.cost, 'utf8')::jsonb as cost
    from (
        select run_id, cost
        from attempts
        where attempts.tenant = $1::text and attempts.ended_at > $2::bigint and attempts.cost is not null
        offset 0
    ) as attempt
    cross join lateral (
        select workflow
        from run_details
        where run_details.tenant = $1::text and run_details.run_id = attempt.run_id
        offset 0
    ) as detail
    offset 0
) as spent
group by spent.workflow
order by spent.workflow
