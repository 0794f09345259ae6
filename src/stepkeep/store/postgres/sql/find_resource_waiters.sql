-- Find ready steps that are set aside, in claim order. $1 is JSON: [queue, ...].
select steps.tenant, steps.run_id::text, steps.no, runs.definition_id
from steps join runs on runs.tenant = steps.tenant and runs.id = steps.run_id
where steps.queue in (select asked.value::int from jsonb_array_elements_text($1::text::jsonb) as asked (value))
    and steps.ready_at >= 100000000000000000 and steps.ready_at < 200000000000000000
    and (steps.tenant, steps.run_id) not in (select q.tenant, q.run_id from quarantine q where q.released_at is null)
order by steps.priority desc, steps.ready_at, steps.run_id, steps.no
limit $2::int offset $3::int
