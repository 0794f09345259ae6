-- The audit log: what was asked for with keys and through the service, and what was refused.

create table audit (
    tenant     text not null,
    id         text not null,
    at         integer not null,
    actor      text not null,
    key        text,
    vouched_by text,
    operation  text not null,
    target     text not null,
    outcome    text not null check (outcome in ('done', 'refused', 'failed')),
    code       text,
    request_id text,
    address    text,
    primary key (tenant, at, id)
) strict, without rowid;

create index audit_actor on audit (tenant, actor, at, id);
create index audit_target on audit (tenant, target, at, id);
create index people_journal_time on people_journal (tenant, at, seq);

create trigger audit_never_changes before update on audit
begin
    select raise(abort, 'the audit log is only ever added to');
end;
