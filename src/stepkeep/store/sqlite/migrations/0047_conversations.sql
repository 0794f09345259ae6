-- Conversations of agents: items by key and place, as they are saved by sessions and by savers of checkpoints.
create table conversations (
    tenant text not null,
    name text not null,
    items integer not null check (items >= 0),
    size_bytes integer not null check (size_bytes >= 0),
    changed_at integer not null,
    primary key (tenant, name)
) strict;

create index conversations_by_age on conversations (tenant, changed_at, name);

create table conversation_items (
    tenant text not null,
    conversation text not null,
    key text not null,
    ordinal integer not null check (ordinal >= 0),
    at integer not null,
    value blob not null,
    primary key (tenant, conversation, key, ordinal)
) strict;
