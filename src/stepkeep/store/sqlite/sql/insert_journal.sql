-- Continue the journals of runs.
insert into journal (tenant, run_id, seq, at, body, hash) values (?, ?, ?, ?, ?, ?)
