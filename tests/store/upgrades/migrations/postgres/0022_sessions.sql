-- Sessions of browsers: a key opened in a cookie. Of the cookie only a hash is kept.

create table sessions (
    tenant text collate "C" not null,
    id text collate "C" not null unique,
    owner text collate "C" not null,
    key text collate "C" not null,
    secret_hash text not null check (length(secret_hash) = 64),
    created_at bigint not null,
    expires_at bigint not null,
    ended_at bigint,
    primary key (tenant, id)
);

create trigger ended_session_never_changes after update on sessions for each row
    when (old.ended_at is not null
        or (old.owner, old.key, old.secret_hash, old.created_at, old.expires_at)
            <> (new.owner, new.key, new.secret_hash, new.created_at, new.expires_at))
    execute function stepkeep_refuse('a session keeps its key and its limit, and ends once');

comment on table sessions is 'Sessions of browsers; of the cookie only a hash is kept';
comment on column sessions.tenant is 'Whose row this is; part of every key';
comment on column sessions.id is 'The public id of the session';
comment on column sessions.owner is 'The person who signed in: the owner of the key';
comment on column sessions.key is 'The id of the API key that the session acts with';
comment on column sessions.secret_hash is 'The SHA-256 of the secret in the cookie, in hexadecimal';
comment on column sessions.created_at is 'When the person signed in (microseconds since 1970)';
comment on column sessions.expires_at is 'From when on it is refused';
comment on column sessions.ended_at is 'When the person signed out';
