-- Put messages into the inbox; one that is there already breaks the transaction.
insert into messages (tenant, run_id, id, number, name, payload, sender, arrived_at, consumed_by)
select *
from unnest(
    $1::text::text[], $2::text::uuid[], $3::text[], $4::text::int[], $5::text[], $6::bytea[],
    $7::text[], $8::text::bigint[], $9::text::int[])
