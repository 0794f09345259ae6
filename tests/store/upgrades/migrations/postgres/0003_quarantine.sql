-- Runs that an operator has set aside, and why. A table of its own, because an unreadable run cannot seal an entry of its
-- journal. Each row is one quarantine; its release is added to it, once, and nothing else ever changes.

create table quarantine (
    id bigint generated always as identity primary key,
    tenant text collate "C" not null,
    run_id uuid not null,
    quarantined_at bigint not null,
    released_at bigint,
    quarantined_by text not null,
    reason text not null,
    released_by text,
    release_reason text,
    constraint release_is_whole check (
        (released_at is null) = (released_by is null) and (released_at is null) = (release_reason is null))
);

create unique index quarantine_open on quarantine (tenant, run_id) where released_at is null;

create trigger quarantine_only_grows after update on quarantine for each row
    when (old.released_at is not null or new.released_at is null or new.id <> old.id or new.tenant <> old.tenant
        or new.run_id <> old.run_id or new.quarantined_at <> old.quarantined_at
        or new.quarantined_by <> old.quarantined_by or new.reason <> old.reason)
    execute function stepkeep_refuse('a quarantine is only ever released, once');

create trigger quarantine_is_never_deleted after delete on quarantine for each row
    execute function stepkeep_refuse('the record of a quarantine is kept');
