-- The metrics that the updates of one plan's runs recorded.
SELECT DISTINCT name
FROM latest_steps
WHERE run_id IN (SELECT run_id FROM plan_cells WHERE plan = $plan)
ORDER BY name
