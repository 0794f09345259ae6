-- Messages that were sent by business key: those kept for a run that does not exist yet, and the ids of delivered ones.

create table mailbox (
    tenant     text not null,
    key        text not null,
    id         text not null,
    number     integer not null check (number >= 0),
    name       text not null,
    payload    blob,
    sender     text not null,
    vouched_by text,
    key_id     text,
    arrived_at integer not null,
    expires_at integer not null,
    forget_at  integer not null,
    run_id     text,
    primary key (tenant, key, id),
    check (run_id is null or payload is null),
    check (forget_at >= expires_at)
) strict, without rowid;

create index mailbox_kept on mailbox (tenant, key, number, id) where payload is not null;
create index mailbox_forget on mailbox (forget_at);

create trigger delivered_message_stays_delivered before update on mailbox
when old.run_id is not null and old.forget_at > new.arrived_at
begin
    select raise(abort, 'a delivered message never changes');
end;
