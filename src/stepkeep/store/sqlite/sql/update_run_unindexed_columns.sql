-- Write run rows that are still at the journal sequence they were read at and whose indexed columns are unchanged
-- (due, ended, stopped). Most changes are of this kind, and cost half of those that rewrite three indexes.
update runs
set state = ?4, priority = ?5, seq = ?6, head = ?7, open = ?8, moving = ?9, leased = ?10, failed = ?11, undoing = ?12,
    inbox = ?13, policy = ?15, category = ?16, error = ?17, rollback = ?18, started_at = ?20, business_key = ?22,
    moved_at = ?23
where tenant = ?1 and id = ?2 and definition_id = ?3 and seq = ?24
    and cause is ?14 and due_at is ?19 and ended_at is ?21
    and not exists (select 1 from quarantine q where q.tenant = ?1 and q.run_id = ?2 and q.released_at is null)
