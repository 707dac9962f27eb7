-- The answers of one evaluation that are traced, with a plan to open them in.
SELECT t.problem_id, t.sample_index, any_value(c.plan ORDER BY c.written_at DESC) AS plan
FROM latest_traces t
JOIN plan_cells c USING (run_id)
WHERE t.run_id = $run_id AND t.benchmark = $benchmark AND t.split = $split AND t.update = $update
    AND t.source = 'evaluation'
GROUP BY t.problem_id, t.sample_index
