-- Record decisions about gates; a second one of the same person fails the transaction. $1 holds all evidence.
insert into decisions (
    tenant, run_id, no, activation, person, on_behalf_of, level, decision, at, comment, evidence, key_id,
    delegation_id, held_roles, vouched_by, shown_digest)
select tenant, run_id, no, activation, person, on_behalf_of, level, decision, at, comment,
    substring($1::bytea from evidence_from for evidence_for), key_id, delegation_id, held_roles, vouched_by,
    shown_digest
from unnest(
    $2::text::text[], $3::text::uuid[], $4::text::int[], $5::text::bigint[], $6::text[], $7::text[], $8::text::int[],
    $9::text[], $10::text::bigint[], $11::text[], $12::text::int[], $13::text::int[], $14::text[], $15::text[],
    $16::text[], $17::text[], $18::text[]
) as vote (
    tenant, run_id, no, activation, person, on_behalf_of, level, decision, at, comment, evidence_from, evidence_for,
    key_id, delegation_id, held_roles, vouched_by, shown_digest)
