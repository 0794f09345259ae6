-- Find one ready step that is set aside, if there is any.
select 1 from steps where ready_at >= 100000000000000000 and ready_at < 200000000000000000 limit 1
