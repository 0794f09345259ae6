-- Insert messages that were sent by business key, or replace kept and forgotten ones. A delivered one stays.
insert into mailbox (tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at, run_id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, key, id) do update
set number = excluded.number, name = excluded.name, payload = excluded.payload, sender = excluded.sender,
    vouched_by = excluded.vouched_by, key_id = excluded.key_id, arrived_at = excluded.arrived_at,
    expires_at = excluded.expires_at, forget_at = excluded.forget_at, run_id = excluded.run_id
where mailbox.payload is not null or mailbox.forget_at <= excluded.arrived_at
