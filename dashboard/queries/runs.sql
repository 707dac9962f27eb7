-- Every run once, with the plans that use it, its costs and its share of the budget spent.
SELECT
    o.run_id, o.status, p.plans, o.label, o.method, o.model, o.seed, o.is_control,
    o.updates,
    100 * CASE
        WHEN o.method = 'base' THEN NULL
        WHEN r.spec ->> '$.budget.kind' = 'updates'
            THEN o.updates / nullif((r.spec ->> '$.budget.updates')::DOUBLE, 0)
        -- A method that trains on references is charged for those.
        WHEN r.spec ->> '$.budget.kind' = 'rollout_tokens'
            THEN greatest(coalesce(o.rollout_tokens, 0), coalesce(o.reference_tokens, 0))
                / nullif((r.spec ->> '$.budget.tokens')::DOUBLE, 0)
    END AS progress,
    o.rollout_tokens, o.trained_tokens, o.teacher_tokens, o.wall_seconds,
    o.answers, o.unscored_rate, o.non_finite_metrics, o.bad_lines, o.attempts,
    o.created_at, o.last_activity, o.error
FROM run_overview o
JOIN latest_runs r USING (run_id)
LEFT JOIN (SELECT run_id, list(DISTINCT plan ORDER BY plan) AS plans FROM plan_cells GROUP BY run_id) p USING (run_id)
ORDER BY o.created_at DESC, o.plan, o.label, o.seed, o.run_id
