-- The claimable steps of one run by number: within a run, workers claim the lowest first.
--
-- A step that is claimed by the transaction that made it ready never enters this index.

create index steps_ready on steps (run_id, no) where ready_at is not null;
