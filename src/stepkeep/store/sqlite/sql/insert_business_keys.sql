-- Insert business keys of new runs.
insert into business_keys (tenant, key, run_id) values (?, ?, ?)
