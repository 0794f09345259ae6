-- Find ready steps of one run that are set aside, in claim order. ?1 is JSON: [queue, ...].
select steps.tenant, steps.run_id, steps.no, runs.definition_id
from steps join runs on runs.tenant = steps.tenant and runs.id = steps.run_id
where steps.tenant = ?2 and steps.run_id = ?3
    and steps.queue in (select value from json_each(?1))
    and steps.ready_at >= 100000000000000000 and steps.ready_at < 200000000000000000
    and not exists (
        select 1 from quarantine q where q.tenant = steps.tenant and q.run_id = steps.run_id and q.released_at is null)
order by steps.priority desc, steps.ready_at, steps.no
limit ?4 offset ?5
