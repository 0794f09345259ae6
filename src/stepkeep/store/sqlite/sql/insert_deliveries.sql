-- Insert the cursors that a new run brings itself.
insert into deliveries (
    tenant, run_id, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at, error,
    target)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
