-- Move the beginning of the chain over the audit log of a tenant behind its oldest entries, as far as they are older than
-- a moment without a gap.
update audit_heads
set (forgotten, anchor) = (
    select seq, hash from audit
    where tenant = $1 and seq > audit_heads.forgotten and seq < coalesce(
        (select min(seq) from audit where tenant = $1 and seq <= audit_heads.forgotten + $3 and at >= $2),
        audit_heads.forgotten + $3 + 1
    )
    order by seq desc
    limit 1
)
where tenant = $1 and exists (
    select 1 from audit where tenant = $1 and seq = audit_heads.forgotten + 1 and at < $2
)
