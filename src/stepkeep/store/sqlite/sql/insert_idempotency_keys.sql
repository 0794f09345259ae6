-- Take idempotency keys for new runs.
insert into idempotency_keys (tenant, operation, key, fingerprint, run_id) values (?, ?, ?, ?, ?)
