-- Insert the signature over the head of a finished run, unless the key has signed it before.
insert into signed_heads (tenant, run_id, key_id, entries, head, public_key, signature, signed_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
on conflict (tenant, run_id, key_id) do nothing
