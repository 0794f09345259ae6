-- Advance the cursors of a run that emitted an event, and create those that are missing. ?5 is the time.
insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at)
select ?1, ?2, sinks.name, 1, ?3, ?3 - 1, 2147483647, ?5
from sinks
where sinks.tenant = ?1 and sinks.takes & 1 and substr(?4, 1, length(sinks.prefix)) = sinks.prefix
on conflict (tenant, run_id, sink) do update
set last = max(last, excluded.last), ready_at = case when dead_at is null then coalesce(ready_at, excluded.ready_at) end
