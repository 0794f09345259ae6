-- Read outputs of steps: the note that may hold one, and the output of the attempt that succeeded under the current
-- fence.
select wanted.place, step.note, attempt.output
from unnest($1::text::text[], $2::text::uuid[], $3::text::int[]) with ordinality as wanted (tenant, run_id, no, place)
cross join lateral (
    select note, coalesce((note::json ->> 'checked')::int, fence) as fence
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id and steps.no = wanted.no
    offset 0
) as step
left join lateral (
    select output
    from attempts
    where attempts.tenant = wanted.tenant and attempts.run_id = wanted.run_id and attempts.no = wanted.no
        and attempts.fence = step.fence and attempts.state = 'succeeded'
    offset 0
) as attempt on true
