-- Record that gates opened.
insert into gates (
    tenant, run_id, no, activation, opened_at, level, due_at, shown, shown_digest, closed_at, outcome
) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
