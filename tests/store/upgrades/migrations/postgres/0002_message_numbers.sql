-- Room for the numbers of messages, and a guard for published definitions.
--
-- The number of a message is a journal sequence times 2^20 plus a place, so 32 bits ended at the 2,047th entry of a run.

alter table messages alter column number type bigint;

-- A run keeps to the definition it was started with, so a published version is never changed and never deleted.

create trigger definition_never_changes after update or delete on definitions for each row
    execute function stepkeep_refuse('a published definition never changes; publish a new version');
