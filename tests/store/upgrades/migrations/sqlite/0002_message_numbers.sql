-- A guard for published definitions. (The numbers of messages need no more room here: an integer has 64 bits.)
--
-- A run keeps to the definition it was started with, so a published version is never changed and never deleted.

create trigger definition_never_changes before update on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end;

create trigger definition_is_never_deleted before delete on definitions
begin
    select raise(abort, 'a published definition never changes; publish a new version');
end;
