-- Read how long attempts took in the newest ended runs of a tenant: of those after an id, a number of runs is looked at,
-- then a number of ended ones taken, then a number of attempts.
select ended.id, ended.definition_id, attempts.no, attempts.ended_at - attempts.started_at as taken
from (
    select id, definition_id
    from (
        select id, definition_id, ended_at
        from runs
        where tenant = ?1 and id > ?2
        order by id desc
        limit ?3)
    where ended_at is not null
    order by id desc
    limit ?4) as ended
cross join attempts
where attempts.run_id = ended.id and attempts.tenant = ?1
order by ended.id desc, attempts.no, attempts.fence
limit ?5
