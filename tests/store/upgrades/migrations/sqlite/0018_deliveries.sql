-- Sinks, the delivery cursors of runs, and what people did to them.

create table sinks (
    tenant     text not null,
    name       text not null,
    kind       text not null,
    takes      integer not null check (takes between 1 and 15),
    prefix     text not null,
    patterns   text not null,
    options    blob not null,
    created_at integer not null,
    created_by text not null,
    primary key (tenant, name)
) strict, without rowid;

create table deliveries (
    tenant      text not null,
    run_id      text not null,
    sink        text not null,
    takes       integer not null check (takes between 1 and 15),
    last        integer not null,
    sent        integer not null,
    sent_number integer not null,
    attempts    integer not null default 0,
    fence       integer not null default 0,
    ready_at    integer,
    lease_until integer,
    holder      text,
    dead_at     integer,
    error       text,
    target      blob,
    primary key (tenant, run_id, sink),
    check (min(last, sent, sent_number, attempts, fence) >= 0),
    check (dead_at is null or (ready_at is null and lease_until is null)),
    check (lease_until is null or ready_at is not null),
    check (last <= sent or ready_at is not null or dead_at is not null)
) strict;

create index deliveries_ready on deliveries (tenant, sink, ready_at) where ready_at is not null;
create index deliveries_open on deliveries (tenant, sink, run_id) where ready_at is not null or dead_at is not null;
create index deliveries_dead on deliveries (tenant, sink, run_id) where dead_at is not null;
create index deliveries_course on deliveries (takes) where takes > 1;

create trigger delivery_fence_only_grows before update of fence on deliveries when new.fence < old.fence
begin
    select raise(abort, 'the fence of a delivery only grows');
end;

create trigger delivery_is_not_taken_back before update of sent, sent_number on deliveries
when new.sent < old.sent or (new.sent = old.sent and new.sent_number < old.sent_number)
begin
    select raise(abort, 'what was delivered stays delivered');
end;

create table delivery_actions (
    id      integer primary key,
    tenant  text not null,
    at      integer not null,
    actor   text not null,
    action  text not null,
    sink    text not null,
    run_id  text,
    seq     integer,
    number  integer,
    reason  text not null
) strict;

create index delivery_actions_run on delivery_actions (tenant, run_id, id) where run_id is not null;
create index delivery_actions_tenant on delivery_actions (tenant, id);

create trigger delivery_action_never_changes before update on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end;

create trigger delivery_action_stays before delete on delivery_actions
begin
    select raise(abort, 'what people did to deliveries stays on record');
end;
