-- One metric at every update of every run of one plan.
SELECT
    c.position, c.label, c.axes, c.method, c.is_control, c.seed, c.run_id, m.update, m.value,
    m.rollout_tokens, m.trained_tokens, m.teacher_tokens, m.total_tokens, m.wall_seconds, m.gpu_seconds, m.flop
FROM plan_cells c
JOIN metric_curves m USING (run_id)
WHERE c.plan = $plan AND m.name = $metric
ORDER BY c.position, c.label, c.axes, c.seed, m.update
