-- Take business keys for new runs.
insert into business_keys (tenant, key, run_id) values (?, ?, ?)
