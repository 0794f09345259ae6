-- Insert idempotency keys of new runs.
insert into idempotency_keys (tenant, operation, key, fingerprint, run_id, scope) values (?, ?, ?, ?, ?, ?)
