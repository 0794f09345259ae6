-- Read how long attempts took in the newest ended runs of a tenant: of those after an id, a number of runs is looked at,
-- then a number of ended ones taken, then a number of attempts.
select ended.id::text, ended.definition_id, attempts.no, attempts.ended_at - attempts.started_at as taken
from (
    select newest.id, newest.definition_id
    from (
        select id, definition_id, ended_at
        from runs
        where tenant = $1 and id > $2::uuid
        order by runs.id desc
        limit $3) as newest
    where newest.ended_at is not null
    order by newest.id desc
    limit $4) as ended
cross join lateral (
    select no, fence, started_at, ended_at
    from attempts
    where run_id = ended.id and tenant = $1
    order by no, fence
    limit $5) as attempts
order by ended.id desc, attempts.no, attempts.fence
limit $5
