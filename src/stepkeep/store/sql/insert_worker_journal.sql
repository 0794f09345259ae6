-- Continue the journal of a worker.
insert into worker_journal (tenant, worker_id, seq, at, body, hash) values ($1, $2, $3, $4, $5, $6)
