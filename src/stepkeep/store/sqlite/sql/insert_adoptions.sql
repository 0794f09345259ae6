-- Record which steps a new run took from earlier ones.
insert into adoptions (tenant, run_id, no, source_run, source_step, owned)
values (?1, ?2, ?3, ?4, ?5, ?6)
