-- The plans whose present edition uses one run.
SELECT plan, label, axes, is_control, overrides, tags
FROM plan_cells
WHERE run_id = $run_id
ORDER BY plan, label
