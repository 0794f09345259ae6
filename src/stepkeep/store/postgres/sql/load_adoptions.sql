-- Read what was adopted from runs.
select adoption.tenant, adoption.run_id::text, adoption.no, adoption.source_run::text, adoption.source_step,
    adoption.owned
from unnest($1::text::text[], $2::text::uuid[]) as wanted (tenant, run_id)
cross join lateral (
    select tenant, run_id, no, source_run, source_step, owned
    from adoptions
    where adoptions.tenant = wanted.tenant and adoptions.source_run = wanted.run_id
    offset 0
) as adoption
