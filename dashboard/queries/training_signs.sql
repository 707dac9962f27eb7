-- What tells of trouble in training: rollouts not scored, the student's entropy at both ends, divergences not finite.
WITH entropies AS (
    SELECT run_id, value, ceil($share * count(*) OVER (PARTITION BY run_id)) AS n_end,
           row_number() OVER (PARTITION BY run_id ORDER BY update) AS from_start,
           row_number() OVER (PARTITION BY run_id ORDER BY update DESC) AS from_end
    FROM latest_steps
    WHERE name = 'entropy/student' AND value IS NOT NULL
), ends AS (
    SELECT run_id, avg(value) FILTER (from_start <= n_end) AS first_entropy,
           avg(value) FILTER (from_end <= n_end) AS last_entropy
    FROM entropies GROUP BY run_id
), drawn AS (
    SELECT run_id, count(*) AS rollouts, count(*) FILTER (verdict = 'not_scored') AS unscored_rollouts
    FROM latest_rollouts GROUP BY run_id
), divergences AS (
    SELECT run_id, count(*) AS non_finite_divergences
    FROM latest_steps WHERE starts_with(name, 'divergence/') AND value IS NULL GROUP BY run_id
)
SELECT run_id, coalesce(d.rollouts, 0) AS rollouts, coalesce(d.unscored_rollouts, 0) AS unscored_rollouts,
       e.first_entropy, e.last_entropy, coalesce(v.non_finite_divergences, 0) AS non_finite_divergences
FROM latest_runs
LEFT JOIN drawn d USING (run_id)
LEFT JOIN ends e USING (run_id)
LEFT JOIN divergences v USING (run_id)
ORDER BY run_id
