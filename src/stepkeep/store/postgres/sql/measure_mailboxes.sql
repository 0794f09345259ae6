-- Tell how much is kept for business keys, and the last number.
select wanted.tenant, wanted.key, kept.count, kept.size_bytes, kept.last_number
from unnest($1::text[], $2::text[]) as wanted (tenant, key)
cross join lateral (
    select count(*) as count, sum(length(payload)) as size_bytes, max(number) as last_number
    from mailbox
    where mailbox.tenant = wanted.tenant and mailbox.key = wanted.key and mailbox.payload is not null
) as kept
where kept.count > 0
