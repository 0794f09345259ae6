-- Read the inputs of runs, with their requesters, labels and pinned policies.
select wanted.place, detail.input, detail.created_by, detail.labels, detail.policy_revision
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select input, created_by, labels, policy_revision
    from run_details
    where run_details.tenant = wanted.tenant and run_details.run_id = wanted.run_id
    offset 0
) as detail
