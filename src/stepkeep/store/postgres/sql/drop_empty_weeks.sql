-- Drop weeks of the journal that have passed and take no room any more.
select stepkeep_drop_empty_weeks()
