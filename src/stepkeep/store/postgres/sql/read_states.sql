-- Read the states of runs, with the definition, the error and the last journal entry of each; of one that has succeeded
-- also the output of step $3, as `load_outputs` finds it. A number that no step has asks for no output.
select runs.tenant, runs.id::text, runs.state, runs.definition_id, runs.error, runs.seq, step.no, step.note, attempt.output
from unnest($1::text[], $2::text::uuid[], $3::text::int[]) as wanted (tenant, run_id, no)
join runs on runs.tenant = wanted.tenant and runs.id = wanted.run_id
left join lateral (
    select no, note, coalesce((note::json ->> 'checked')::int, fence) as fence
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id and steps.no = wanted.no
        and runs.state = 'succeeded'
    offset 0
) as step on true
left join lateral (
    select output
    from attempts
    where attempts.tenant = wanted.tenant and attempts.run_id = wanted.run_id and attempts.no = wanted.no
        and attempts.fence = step.fence and attempts.state = 'succeeded'
    offset 0
) as attempt on true
