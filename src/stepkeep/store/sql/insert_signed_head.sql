-- Insert the signature over the head of a finished run, unless the key has signed it before.
insert into signed_heads (tenant, run_id, key_id, entries, head, public_key, signature, signed_at)
values ($1, $2::uuid, $3, $4::bigint, $5, $6, $7, $8::bigint)
on conflict (run_id, key_id, tenant) do nothing
