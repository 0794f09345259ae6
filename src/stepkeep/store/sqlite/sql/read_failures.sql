-- Read why the newest stopped runs of a tenant were stopped: those after an id that have an error and were not
-- cancelled, newest first, each with the step that failed first.
select stopped.id, stopped.definition_id, stopped.state, steps.no, steps.note -> 'call' ->> 'name',
    coalesce(steps.category, stopped.category), coalesce(steps.error, stopped.error), stopped.ended_at
from (
    select runs.id, runs.definition_id, runs.state, runs.category, runs.error, runs.ended_at, (
        select failed.no
        from steps as failed
        where failed.tenant = ?1 and failed.run_id = runs.id and failed.state = 'failed'
        order by failed.settled
        limit 1) as no
    from runs indexed by runs_troubled
    where runs.tenant = ?1 and runs.id > ?2 and runs.cause is not null and runs.cause <> 'cancel'
        and runs.error is not null
    order by runs.id desc
    limit ?3) as stopped
left join steps on steps.tenant = ?1 and steps.run_id = stopped.id and steps.no = stopped.no
order by stopped.id desc
