-- Count the queued runs of a tenant that wait for a slot, up to a limit.
select count(*)
from (
    select 1
    from slots join runs on runs.tenant = slots.tenant and runs.id = slots.run_id
    where slots.tenant = $1 and slots.granted_at is null and runs.state = 'queued'
    limit $2::int
) as waiting
