-- Add a delegation, or revoke it.
insert into delegations (
    tenant, id, delegator, delegate, granted_at, granted_by, reason, valid_from, valid_to, revoked_at, revoked_by
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (tenant, id) do update set revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by
