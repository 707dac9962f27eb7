-- The plans with a traced run, the one recorded last first.
SELECT c.plan
FROM plan_cells c
WHERE c.run_id IN (SELECT run_id FROM latest_traces)
GROUP BY c.plan
ORDER BY max(c.written_at) DESC, c.plan
