-- What the runs of one plan were evaluated on.
SELECT DISTINCT benchmark, split
FROM latest_evaluations
WHERE run_id IN (SELECT run_id FROM plan_cells WHERE plan = $plan)
ORDER BY benchmark, split
