-- Create the cursors of a new run for sinks that take more than what it emits. ?3 is its sequence, ?4 the time, ?5
-- tells whether it has ended.
insert into deliveries (tenant, run_id, sink, takes, last, sent, sent_number, ready_at)
select ?1, ?2, sinks.name, sinks.takes & 15, case when sinks.takes & 6 or ?5 then ?3 else 0 end, 0, 2147483647,
    case when sinks.takes & 6 or ?5 then ?4 end
from sinks
where sinks.tenant = ?1 and sinks.takes & 14
