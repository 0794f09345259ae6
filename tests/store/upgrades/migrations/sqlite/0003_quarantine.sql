-- Runs that an operator has set aside, and why. A table of its own, because an unreadable run cannot seal an entry of its
-- journal. Each row is one quarantine; its release is added to it, once, and nothing else ever changes.

create table quarantine (
    id             integer primary key autoincrement,
    tenant         text not null,
    run_id         text not null,
    quarantined_at integer not null,
    quarantined_by text not null,
    reason         text not null,
    released_at    integer,
    released_by    text,
    release_reason text,
    constraint release_is_whole check (
        (released_at is null) = (released_by is null) and (released_at is null) = (release_reason is null))
) strict;

create unique index quarantine_open on quarantine (tenant, run_id) where released_at is null;

create trigger quarantine_only_grows before update on quarantine
when old.released_at is not null or new.released_at is null or new.id <> old.id or new.tenant <> old.tenant
    or new.run_id <> old.run_id or new.quarantined_at <> old.quarantined_at
    or new.quarantined_by <> old.quarantined_by or new.reason <> old.reason
begin
    select raise(abort, 'a quarantine is only ever released, once');
end;

create trigger quarantine_is_never_deleted before delete on quarantine
begin
    select raise(abort, 'the record of a quarantine is kept');
end;
