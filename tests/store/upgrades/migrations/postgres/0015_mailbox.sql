-- Messages that were sent by business key: those kept for a run that does not exist yet, and the ids of delivered ones.

create table mailbox (
    tenant text collate "C" not null,
    key text collate "C" not null,
    id text collate "C" not null,
    number bigint not null check (number >= 0),
    name text collate "C" not null,
    payload bytea,
    sender text not null,
    vouched_by text,
    key_id text,
    arrived_at bigint not null,
    expires_at bigint not null,
    forget_at bigint not null,
    run_id uuid,
    primary key (tenant, key, id),
    check (run_id is null or payload is null),
    check (forget_at >= expires_at)
);

create index mailbox_kept on mailbox (tenant, key, number, id) where payload is not null;
create index mailbox_forget on mailbox (forget_at);

create trigger delivered_message_stays_delivered after update on mailbox for each row
    when (old.run_id is not null and old.forget_at > new.arrived_at)
    execute function stepkeep_refuse('a delivered message never changes');

comment on table mailbox is 'Messages sent by business key: kept for a run that does not exist yet, or delivered';
comment on column mailbox.tenant is 'Whose row this is; part of every key';
comment on column mailbox.key is 'The business key that the message was sent to';
comment on column mailbox.id is 'The sender''s id of the message; the same one again changes nothing';
comment on column mailbox.number is 'Orders the kept messages of a key; 0 for one that was delivered at once';
comment on column mailbox.name is 'The name of the event';
comment on column mailbox.payload is 'The payload as JSON while the message is kept; null once it was delivered or dropped';
comment on column mailbox.sender is 'Actor that sent it';
comment on column mailbox.vouched_by is 'The program that named the actor, if one did';
comment on column mailbox.key_id is 'The id of the API key that was used';
comment on column mailbox.arrived_at is 'When it was sent (microseconds since 1970)';
comment on column mailbox.expires_at is 'From when on it is not delivered any more (microseconds since 1970)';
comment on column mailbox.forget_at is 'When its id is forgotten and the row deleted (microseconds since 1970)';
comment on column mailbox.run_id is 'The run that it was delivered to';
