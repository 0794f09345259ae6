-- Signatures over the ends of the journals of finished runs, made after the end by a process that has the key.

create table signed_heads (
    tenant text collate "C" not null,
    run_id uuid not null,
    key_id text collate "C" not null,
    entries bigint not null,
    head bytea not null,
    public_key text not null,
    signature text not null,
    signed_at bigint not null,
    primary key (run_id, key_id, tenant)
);

create trigger signed_head_never_changes after update on signed_heads for each row
    execute function stepkeep_refuse('a signature is only ever added');

comment on table signed_heads is 'Ed25519 signatures over the heads of finished runs, one for each key';
comment on column signed_heads.tenant is 'Whose row this is; part of every key';
comment on column signed_heads.run_id is 'The run';
comment on column signed_heads.key_id is 'The short name of the public key';
comment on column signed_heads.entries is 'How many entries the journal has';
comment on column signed_heads.head is 'The hash of its last entry';
comment on column signed_heads.public_key is 'The public key, in hexadecimal';
comment on column signed_heads.signature is 'The signature, in hexadecimal';
comment on column signed_heads.signed_at is 'When it was made (microseconds since 1970)';
