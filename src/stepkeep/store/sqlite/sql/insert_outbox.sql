-- Insert outbox entries.
insert into outbox (tenant, run_id, seq, number, name, payload, created_at) values (?, ?, ?, ?, ?, ?, ?)
