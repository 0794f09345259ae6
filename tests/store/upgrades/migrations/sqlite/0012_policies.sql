-- The live policies of tenants, in numbered revisions. The newest one counts.

create table policies (
    tenant       text not null,
    revision     integer not null check (revision > 0),
    name         text not null,
    digest       text not null,
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, revision)
) strict;

create trigger policy_never_changes before update on policies
begin
    select raise(abort, 'a policy is only ever added: publish another revision');
end;

create trigger policy_stays before delete on policies
begin
    select raise(abort, 'a policy is never deleted: verdicts on record refer to it');
end;
