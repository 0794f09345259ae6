-- Advance the cursors of a worker whose journal has grown to ?3, and create those that are missing. ?2 stands for the
-- worker, and ?5 names it. ?4 is the time.
insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at, target)
select ?1, ?2, sinks.name, 4, ?3, ?3 - 1, 2147483647, ?4, ?5
from sinks
where sinks.tenant = ?1 and sinks.takes & 16
on conflict (tenant, run_id, sink) do update
set last = max(last, excluded.last), ready_at = case when dead_at is null then coalesce(ready_at, excluded.ready_at) end
