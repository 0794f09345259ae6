-- Read where the chain over the audit log of a tenant ends and begins.
select tenant, seq, hash, forgotten, anchor from audit_heads where tenant = $1
