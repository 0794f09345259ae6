-- A hash chain over the audit log of each tenant. Entries of earlier versions stay outside of it: `seq` is null.

alter table audit add column seq bigint, add column hash text,
    add constraint audit_seq check (seq > 0), add constraint audit_hash check ((hash is null) = (seq is null));

create unique index audit_chain on audit (tenant, seq) where seq is not null;
create index audit_unchained on audit (tenant, at) where seq is null;

create table audit_heads (
    tenant text collate "C" primary key,
    seq bigint not null,
    hash text not null,
    forgotten bigint not null,
    anchor text not null,
    constraint audit_head_hash check (length(hash) = 64),
    constraint audit_head_order check (seq >= forgotten)
);

comment on column audit.seq is 'The place in the chain of the tenant; null for entries of earlier versions';
comment on column audit.hash is 'The SHA-256 over the hash of the entry before and this entry, in hex';
comment on table audit_heads is 'Where the chain over the audit log of a tenant ends, and where what is kept of it begins';
comment on column audit_heads.tenant is 'Whose row this is; part of every key';
comment on column audit_heads.seq is 'The last entry of the chain';
comment on column audit_heads.hash is 'Its hash';
comment on column audit_heads.forgotten is 'The last entry that retention has deleted; 0 if none';
comment on column audit_heads.anchor is 'Its hash; empty if none';
