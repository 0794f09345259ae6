-- Sessions of browsers: a key opened in a cookie. Of the cookie only a hash is kept.

create table sessions (
    tenant      text not null,
    id          text not null unique,
    owner       text not null,
    key         text not null,
    secret_hash text not null check (length(secret_hash) = 64),
    created_at  integer not null,
    expires_at  integer not null,
    ended_at    integer,
    primary key (tenant, id)
) strict, without rowid;

create trigger ended_session_never_changes before update on sessions
when old.ended_at is not null
    or (old.owner, old.key, old.secret_hash, old.created_at, old.expires_at)
        <> (new.owner, new.key, new.secret_hash, new.created_at, new.expires_at)
begin
    select raise(abort, 'a session keeps its key and its limit, and ends once');
end;
