-- The runs of one plan, in the order of its table.
SELECT position, label, axes, is_control, method, seed, run_id, base_run_id, status
FROM plan_cells
WHERE plan = $plan
ORDER BY position, label, axes, seed, run_id
