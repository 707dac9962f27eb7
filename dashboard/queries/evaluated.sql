-- What the runs of one plan were evaluated on, and the most answers a problem.
SELECT benchmark, split, max(samples_per_problem) AS samples
FROM latest_evaluations
WHERE run_id IN (SELECT run_id FROM plan_cells WHERE plan = $plan)
GROUP BY benchmark, split
ORDER BY benchmark, split
