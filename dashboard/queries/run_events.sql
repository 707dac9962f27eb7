-- What happened to one run, in order.
SELECT happened_at, status, attempt, error, details
FROM latest_run_events
WHERE run_id = $run_id
ORDER BY sequence, attempt, happened_at
