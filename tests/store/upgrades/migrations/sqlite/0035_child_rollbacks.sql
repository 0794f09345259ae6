-- The rollback of a finished child is a child of the parent's undo step. `undoes` names the run that it rolls back.

alter table children add column undoes text;
