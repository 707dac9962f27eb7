-- Every metric of one run at every update.
SELECT name, update, value, rollout_tokens, trained_tokens, teacher_tokens, total_tokens, wall_seconds, gpu_seconds, flop
FROM metric_curves
WHERE run_id = $run_id
ORDER BY name, update
