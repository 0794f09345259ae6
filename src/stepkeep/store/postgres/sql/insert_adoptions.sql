-- Record which steps new runs took from earlier ones.
insert into adoptions (tenant, run_id, no, source_run, source_step, owned)
select tenant, run_id, no, source_run, source_step, owned
from unnest(
    $1::text::text[], $2::text::uuid[], $3::text::int[], $4::text::uuid[], $5::text[], $6::text::int[]
) as adoption (tenant, run_id, no, source_run, source_step, owned)
