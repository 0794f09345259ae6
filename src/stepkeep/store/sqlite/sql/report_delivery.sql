-- Write the report of a relay, if the cursor still has its fence: what was delivered, and when the rest is due.
update deliveries
set sent = ?6, sent_number = ?7, attempts = ?8, error = ?12,
    dead_at = case when ?11 then ?5 end,
    lease_until = case when not ?11 then ?5 + ?10 end,
    ready_at = case
        when ?11 then null
        when ?10 is not null then ?5 + ?10
        when last > ?6 or (last = ?6 and ?7 < 2147483647) then ?5 + ?9
    end
where tenant = ?1 and run_id = ?2 and sink = ?3 and fence = ?4 and lease_until is not null
returning fence
