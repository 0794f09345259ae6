-- Add the weeks of the journal that are missing, this one and so many ahead.
select stepkeep_extend_journal($1::int)
