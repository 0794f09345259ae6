-- Record decisions about gates; a second one of the same person fails the transaction.
insert into decisions (
    tenant, run_id, no, activation, person, on_behalf_of, level, decision, at, comment, evidence, key_id,
    delegation_id, held_roles, vouched_by, shown_digest
) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
