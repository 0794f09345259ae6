-- Tell which of these checkpoints are on record, and under which fence.
select wanted.place, found.fence
from unnest($1::text::text[], $2::text::uuid[], $3::text::int[], $4::text[])
    with ordinality as wanted (tenant, run_id, no, name, place)
cross join lateral (
    select fence
    from checkpoints
    where checkpoints.tenant = wanted.tenant and checkpoints.run_id = wanted.run_id
        and checkpoints.no = wanted.no and checkpoints.name = wanted.name
    offset 0
) as found
