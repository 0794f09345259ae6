-- Steps that hold after they have run: among them flows that hold until other code is there.
create index steps_hold on steps (tenant, run_id, no) where state = 'awaiting_approval' and fence > 0;
