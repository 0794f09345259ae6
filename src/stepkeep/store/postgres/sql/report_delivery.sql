-- Write the report of a relay, if the cursor still has its fence: what was delivered, and when the rest is due.
update deliveries
set sent = $6, sent_number = $7, attempts = $8, error = $12,
    dead_at = case when $11::boolean then clock.now end,
    lease_until = case when not $11::boolean then clock.now + $10::bigint end,
    ready_at = case
        when $11::boolean then null
        when $10::bigint is not null then clock.now + $10::bigint
        when last > $6 or (last = $6 and $7 < 2147483647) then clock.now + $9::bigint
    end
from (select stepkeep_now() + $5::bigint as now) as clock
where tenant = $1 and run_id = $2::uuid and sink = $3 and fence = $4 and lease_until is not null
returning fence
