-- Read the steps of the wanted runs that wait for a person, a message or a deadline.
select wanted.place, step.*
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
        category, error, note
    from steps
    where steps.tenant = wanted.tenant and steps.run_id = wanted.run_id
        and steps.state in ('awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')
    offset 0
) as step
