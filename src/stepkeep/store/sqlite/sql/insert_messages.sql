-- Insert messages into the inboxes of runs.
insert into messages (tenant, run_id, id, number, name, payload, sender, arrived_at, consumed_by)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
