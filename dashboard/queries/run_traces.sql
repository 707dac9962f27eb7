-- The problems of one run's evaluations whose first answer is traced, with a plan to open them in.
SELECT t.benchmark, t.split, t.update, t.problem_id, any_value(c.plan) AS plan, any_value(c.label) AS label
FROM latest_traces t
JOIN plan_cells c USING (run_id)
WHERE t.run_id = $run_id AND t.benchmark = $benchmark AND t.split = $split AND t.update = $update
    AND t.source = 'evaluation'
GROUP BY ALL
