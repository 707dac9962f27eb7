-- Every evaluation of one run, those of the untrained model it starts from included.
SELECT
    v.benchmark, v.split, v.update, v.accuracy, v.standard_error, v.lenient_accuracy, v.format_rate,
    v.truncated_rate, v.completion_tokens, v.n_problems, v.n_answers, v.unscored_rate,
    v.rollout_tokens, v.trained_tokens, v.teacher_tokens, v.total_tokens, v.wall_seconds, v.gpu_seconds, v.flop,
    v.source_run_id, v.from_base
FROM curves v
WHERE v.run_id = $run_id
ORDER BY v.benchmark, v.split, v.update
