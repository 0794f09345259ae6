-- A hash chain over the audit log of each tenant. Entries of earlier versions stay outside of it: `seq` is null.

alter table audit add column seq integer check (seq > 0);
alter table audit add column hash text check ((hash is null) = (seq is null));

create unique index audit_chain on audit (tenant, seq) where seq is not null;
create index audit_unchained on audit (tenant, at) where seq is null;

create table audit_heads (
    tenant    text not null primary key,
    seq       integer not null,
    hash      text not null check (length(hash) = 64),
    forgotten integer not null,
    anchor    text not null,
    constraint audit_head_order check (seq >= forgotten)
) strict, without rowid;
