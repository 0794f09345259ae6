-- Move the end of the chain over the audit log of a tenant.
insert into audit_heads (tenant, seq, hash, forgotten, anchor)
values ($1, $2, $3, $4, $5)
on conflict (tenant) do update set seq = excluded.seq, hash = excluded.hash
