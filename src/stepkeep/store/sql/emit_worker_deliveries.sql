-- Advance the cursors of a worker whose journal has grown to $3, and create those that are missing. $2 stands for the
-- worker, and $5 names it.
insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at, target)
select $1, $2::uuid, sinks.name, 4, $3::bigint, $3::bigint - 1, 2147483647, stepkeep_now() + $4::bigint, $5::bytea
from sinks
where sinks.tenant = $1 and sinks.takes & 16 <> 0
on conflict (tenant, run_id, sink) do update
set last = greatest(deliveries.last, excluded.last),
    ready_at = case when deliveries.dead_at is null then coalesce(deliveries.ready_at, excluded.ready_at) end
