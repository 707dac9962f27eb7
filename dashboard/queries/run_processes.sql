-- The processes that wrote one run's facts.
SELECT role, host, pid, lines, bad_lines, first_at, last_at
FROM processes
WHERE run_id = $run_id
ORDER BY first_at, role, pid
