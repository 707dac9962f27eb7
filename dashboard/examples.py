"""Worked queries that the SQL page offers."""

from __future__ import annotations

EXAMPLES = {
    "Final scores of every run": (
        "SELECT plan, label, seed, benchmark, split, update, accuracy, n_problems\n"
        "FROM final_scores\n"
        "ORDER BY plan, benchmark, accuracy DESC"
    ),
    "Mean and spread over seeds": (
        "SELECT plan, label, benchmark, count(*) AS seeds, avg(accuracy) AS mean, stddev(accuracy) AS spread\n"
        "FROM final_scores\n"
        "GROUP BY ALL\n"
        "ORDER BY plan, benchmark, mean DESC"
    ),
    "Problems that no seed of a method solves": (
        "SELECT f.plan, f.label, p.benchmark, p.problem_id, count(*) AS seeds\n"
        "FROM problem_scores p\n"
        "JOIN final_scores f USING (run_id, update, benchmark, split)\n"
        "GROUP BY ALL\n"
        "HAVING max(p.n_passed) = 0\n"
        "ORDER BY ALL"
    ),
    "Paired differences, seed by seed": (
        "SELECT plan, label, baseline_label, seed, benchmark, delta, standard_error, n_problems\n"
        "FROM ablations\n"
        "ORDER BY plan, position, baseline_label, seed"
    ),
    "Cost of every run": (
        "SELECT plan, label, seed, updates, rollout_tokens, trained_tokens, teacher_tokens, wall_seconds\n"
        "FROM run_overview\n"
        "ORDER BY wall_seconds DESC"
    ),
    "Loss along training": (
        "SELECT run_id, update, value AS loss, rollout_tokens\n"
        "FROM metric_curves\n"
        "WHERE name = 'loss'\n"
        "ORDER BY run_id, update"
    ),
    "Answers that could not be scored": (
        "SELECT run_id, update, benchmark, problem_id, sample_index, grader, error\n"
        "FROM graded_answers\n"
        "WHERE verdict = 'not_scored'"
    ),
    "Every run at the same cost": (
        "WITH budget AS (\n"
        "    SELECT plan, min(total_tokens) AS total_tokens\n"
        "    FROM (SELECT plan, run_id, max(total_tokens) AS total_tokens FROM curves GROUP BY ALL)\n"
        "    WHERE total_tokens > 0 GROUP BY plan\n"
        ")\n"
        "SELECT c.plan, c.label, c.seed, c.benchmark, c.split, arg_max(c.accuracy, c.update) AS accuracy,\n"
        "       max(c.update) AS update, any_value(b.total_tokens) AS budget\n"
        "FROM curves c JOIN budget b USING (plan)\n"
        "WHERE c.total_tokens <= b.total_tokens\n"
        "GROUP BY ALL\n"
        "ORDER BY c.plan, c.benchmark, c.split, accuracy DESC"
    ),
    "pass@k of the last evaluations": (
        "SELECT f.plan, f.label, p.benchmark, p.split, p.k, avg(p.pass_at_k) AS pass_at_k, avg(p.pass_hat_k) AS each,\n"
        "       sum(p.n_excluded) AS left_out\n"
        "FROM pass_at_k p JOIN final_scores f USING (run_id, update, benchmark, split)\n"
        "GROUP BY ALL\n"
        "ORDER BY ALL"
    ),
    "A setting of every run": (
        "SELECT run_id, method, seed, spec ->> '$.method.phases.student.optimiser.learning_rate' AS learning_rate\n"
        "FROM latest_runs\n"
        "ORDER BY run_id"
    ),
    "Runs that failed, and why": (
        "SELECT run_id, plan, label, seed, updates, attempts, error\n"
        "FROM run_overview\n"
        "WHERE status IN ('failed', 'stopped')\n"
        "ORDER BY plan, label, seed"
    ),
    "What every column means": (
        "SELECT table_name, column_name, data_type, comment\n"
        "FROM duckdb_columns()\n"
        "WHERE NOT internal AND comment IS NOT NULL\n"
        "ORDER BY table_name, column_index"
    ),
}
"""Title -> a query that works on every store."""
