-- The registry of JSON Schemas that definitions refer to. A published schema never changes.

create table schemas (
    tenant       text not null,
    ref          text not null,
    digest       text not null check (length(digest) = 64),
    document     blob not null,
    published_at integer not null,
    published_by text not null,
    primary key (tenant, ref)
) strict;

create trigger schema_never_changes before update on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end;

create trigger schema_is_never_deleted before delete on schemas
begin
    select raise(abort, 'a published schema never changes; publish it under another reference');
end;
