-- Add an entry to the journal of people; a sequence number that is taken is refused.
insert into people_journal (tenant, seq, at, subject, body, hash) values ($1, $2, $3, $4, $5, $6)
