-- Advance the cursors of runs that emitted events, and create those that are missing.
insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at)
select entry.tenant, entry.run_id, sinks.name, 1, max(entry.seq), min(entry.seq) - 1, 2147483647,
    (select stepkeep_now() + $5::bigint)
from unnest($1::text::text[], $2::text::uuid[], $3::text::bigint[], $4::text[]) as entry (tenant, run_id, seq, name)
cross join sinks
where sinks.tenant = entry.tenant and sinks.takes & 1 <> 0 and starts_with(entry.name, sinks.prefix)
group by entry.tenant, entry.run_id, sinks.name
order by entry.run_id, sinks.name
on conflict (tenant, run_id, sink) do update
set last = greatest(deliveries.last, excluded.last),
    ready_at = case when deliveries.dead_at is null then coalesce(deliveries.ready_at, excluded.ready_at) end
