-- Insert undo steps and final checks. The parameters are like those of `write_hot`.
insert into steps (
    tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet,
    settled, category, error, note)
select $2::text, run[n[i + 1]], n[i + 2], n[i + 3], n[i + 4], word[n[i + 5]], nullif(n[i + 6], -1),
    nullif(n[i + 7], -1), n[i + 8], nullif(n[i + 9], -1), nullif(n[i + 10], -1), n[i + 11], n[i + 12], n[i + 13],
    nullif(n[i + 14], -1), word[n[i + 15]], stepkeep_text($1, n[i + 16]), stepkeep_text($1, n[i + 17])
from (select $3::text::uuid[] as run, $4::text::text[] as word, $5::text::bigint[] as n offset 0) as given
cross join generate_series(0, cardinality(n) - 1, 17) as i
