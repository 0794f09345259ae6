-- Read the people who asked for runs, and for the runs that these repeat.
select wanted.place, detail.created_by, detail.asked_before
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select created_by, asked_before
    from run_details
    where run_details.tenant = wanted.tenant and run_details.run_id = wanted.run_id
    offset 0
) as detail
