-- Continue the journals of workers.
insert into worker_journal (tenant, worker_id, seq, at, body, hash) values (?, ?, ?, ?, ?, ?)
