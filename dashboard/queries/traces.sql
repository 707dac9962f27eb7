-- Every trace of a plan's runs and of the untrained models they start from, each with the cell that it belongs to.
SELECT
    c.position, c.label, c.axes, c.method, c.seed, c.run_id,
    t.run_id AS source_run_id, t.source, t.update, t.benchmark, t.split, t.problem_id, t.sample_index,
    t.sample_file, t.sample_row, t.tokens, t.verdict, t.score, t.term, t.divergence, t.mean_divergence,
    t.mean_forward_kl, t.mean_entropy, t.teacher, t.context, t.note,
    p.prompt, p.answer AS expected
FROM plan_cells c
JOIN latest_traces t ON t.run_id = c.run_id
LEFT JOIN latest_problems p
    ON p.run_id = t.run_id AND p.benchmark = t.benchmark AND p.split = t.split AND p.problem_id = t.problem_id
WHERE c.plan = $plan
ORDER BY t.benchmark, t.split, t.problem_id, c.position, c.label, c.axes, c.seed, t.update, t.sample_index
