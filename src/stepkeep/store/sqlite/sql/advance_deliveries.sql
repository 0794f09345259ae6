-- Advance the cursors of a run whose journal has grown, for sinks that take more than what it emits. ?3 is its
-- sequence, ?4 the time, ?5 tells whether it has ended.
update deliveries
set last = ?3, ready_at = case when dead_at is null then coalesce(ready_at, ?4) end
where tenant = ?1 and run_id = ?2 and (takes & 6 or (takes & 8 and ?5))
