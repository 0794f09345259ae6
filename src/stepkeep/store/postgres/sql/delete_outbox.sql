-- Delete the outboxes of runs that are deleted.
delete from outbox
using unnest($2::text::uuid[]) as gone (run_id)
where outbox.tenant = $1 and outbox.run_id = gone.run_id
