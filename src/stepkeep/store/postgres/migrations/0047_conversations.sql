-- Conversations of agents: items by key and place, as they are saved by sessions and by savers of checkpoints.
create table conversations (
    tenant text collate "C" not null,
    name text collate "C" not null,
    items bigint not null check (items >= 0),
    size_bytes bigint not null check (size_bytes >= 0),
    changed_at bigint not null,
    primary key (tenant, name)
);

create index conversations_by_age on conversations (tenant, changed_at, name);

create table conversation_items (
    tenant text collate "C" not null,
    conversation text collate "C" not null,
    key text collate "C" not null,
    ordinal bigint not null check (ordinal >= 0),
    at bigint not null,
    value bytea not null,
    primary key (tenant, conversation, key, ordinal)
);

comment on table conversations is 'Conversations of agents; the row is the lock of the items';
comment on column conversations.tenant is 'Whose conversation it is';
comment on column conversations.name is 'Its name';
comment on column conversations.items is 'How many items it has';
comment on column conversations.size_bytes is 'How large they are together';
comment on column conversations.changed_at is 'When it was changed last (microseconds since 1970)';
comment on table conversation_items is 'What is kept of conversations';
comment on column conversation_items.tenant is 'Whose conversation it is';
comment on column conversation_items.conversation is 'Its name';
comment on column conversation_items.key is 'What kind of item, in the order of reading';
comment on column conversation_items.ordinal is 'Its place among those of its key';
comment on column conversation_items.at is 'When it was saved (microseconds since 1970)';
comment on column conversation_items.value is 'JSON, perhaps sealed';
