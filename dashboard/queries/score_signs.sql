-- The last whole evaluation of every run on each benchmark, beside its untrained model's and its best one before.
SELECT
    run_id, benchmark, split,
    max(update) AS update,
    arg_max(accuracy, update) AS accuracy,
    arg_max(standard_error, update) AS standard_error,
    arg_max(accuracy, update) FILTER (update = 0) AS base_accuracy,
    arg_max(standard_error, update) FILTER (update = 0) AS base_standard_error,
    max(accuracy) AS best_accuracy,
    arg_max(standard_error, accuracy) AS best_standard_error,
    arg_max(update, accuracy) AS best_update
FROM curves
WHERE accuracy IS NOT NULL
GROUP BY run_id, benchmark, split
HAVING max(update) > 0
ORDER BY run_id, benchmark, split
