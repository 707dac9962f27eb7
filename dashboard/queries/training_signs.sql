-- What tells of trouble in training, one row a run: both ends of some metrics, spikes, leaks, rollouts not scored.
WITH series AS (
    SELECT run_id, name, list(value ORDER BY update) AS v, ceil($share * count(*))::BIGINT AS n
    FROM latest_steps
    WHERE name IN ('entropy/student', 'completion_tokens_mean', 'truncated_fraction') AND value IS NOT NULL
    GROUP BY run_id, name
), ends AS (
    SELECT run_id,
           max(list_avg(v[:n])) FILTER (name = 'entropy/student') AS first_entropy,
           max(list_avg(v[-n:])) FILTER (name = 'entropy/student') AS last_entropy,
           max(list_avg(v[:n])) FILTER (name = 'completion_tokens_mean') AS first_length,
           max(list_avg(v[-n:])) FILTER (name = 'completion_tokens_mean') AS last_length,
           max(list_avg(v[-n:])) FILTER (name = 'truncated_fraction') AS last_truncated
    FROM series GROUP BY run_id
), divergences AS (
    SELECT run_id, name, update, value,
           median(value) OVER before AS usual, count(value) OVER before AS n_before
    FROM latest_steps
    WHERE starts_with(name, 'divergence/')
    WINDOW before AS (PARTITION BY run_id, name ORDER BY update ROWS BETWEEN $window PRECEDING AND 1 PRECEDING)
), spikes AS (
    SELECT run_id, count(*) AS spikes, max(value / usual) AS largest_spike, arg_max(name, value / usual) AS spike_name,
           arg_max(update, value / usual) AS spike_update
    FROM divergences
    WHERE n_before = $window AND value > $spike * usual AND value > $floor
    GROUP BY run_id
), broken AS (
    SELECT run_id, count(*) AS non_finite_divergences FROM divergences WHERE value IS NULL GROUP BY run_id
), drawn AS (
    SELECT run_id, count(*) AS rollouts, count(*) FILTER (verdict = 'not_scored') AS unscored_rollouts
    FROM latest_rollouts GROUP BY run_id
), leaks AS (
    SELECT run_id,
           max(value) FILTER (starts_with(name, 'context_in_prompt/')) AS context_in_prompt,
           max(value) FILTER (starts_with(name, 'context_copied/')) AS context_copied
    FROM latest_steps
    WHERE starts_with(name, 'context_in_prompt/') OR starts_with(name, 'context_copied/')
    GROUP BY run_id
), shown AS (
    SELECT run_id, count(*) AS answers_in_prompts, min(problem_id) AS answer_shown_in
    FROM latest_problems
    WHERE length(answer) >= $characters AND contains(prompt, answer)
    GROUP BY run_id
)
SELECT run_id, coalesce(d.rollouts, 0) AS rollouts, coalesce(d.unscored_rollouts, 0) AS unscored_rollouts,
       e.first_entropy, e.last_entropy, e.first_length, e.last_length, e.last_truncated,
       coalesce(v.non_finite_divergences, 0) AS non_finite_divergences,
       coalesce(k.spikes, 0) AS spikes, k.largest_spike, k.spike_name, k.spike_update,
       l.context_in_prompt, l.context_copied, coalesce(s.answers_in_prompts, 0) AS answers_in_prompts, s.answer_shown_in
FROM latest_runs
LEFT JOIN drawn d USING (run_id)
LEFT JOIN ends e USING (run_id)
LEFT JOIN broken v USING (run_id)
LEFT JOIN spikes k USING (run_id)
LEFT JOIN leaks l USING (run_id)
LEFT JOIN shown s USING (run_id)
ORDER BY run_id
