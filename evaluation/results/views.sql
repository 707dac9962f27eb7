-- The public surface: every number a table or page shows is one of these views or made from them.
-- Each fact counts once: latest_* keep the highest attempt of each fact (then the last written).
-- The two *_computed views make scores from answers and grades; the ingestor keeps their rows in *_stored tables,
-- because a page that reads millions of answers must not compute them again. The tests compare the two.

-- Sums of fractions are taken over integers (units of 1e-15): they do not depend on the order of the rows, so that
-- a rebuilt database has the same bits. Beyond +-1e15 a score is cut, which keeps one absurd value from stopping all.
CREATE OR REPLACE MACRO fixed(x) AS
    CASE WHEN x IS NOT NULL THEN (greatest(least(x, 1e15), -1e15) * 1e15)::HUGEINT END;  -- least(NULL, a) is a
CREATE OR REPLACE MACRO from_fixed(x) AS x / 1e15;

CREATE OR REPLACE VIEW latest_runs AS
SELECT * EXCLUDE (superseded) FROM runs WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_cells AS
SELECT * EXCLUDE (superseded) FROM cells WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_run_events AS
SELECT * EXCLUDE (superseded) FROM run_events WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_step_costs AS
SELECT * EXCLUDE (superseded) FROM step_costs WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_steps AS
SELECT * EXCLUDE (superseded) FROM steps WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_rollouts AS
SELECT * EXCLUDE (superseded) FROM rollouts WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_problems AS
SELECT * EXCLUDE (superseded) FROM problems WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_answers AS
SELECT * EXCLUDE (superseded) FROM answers WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_grades AS
SELECT * EXCLUDE (superseded) FROM grades WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_evaluations AS
SELECT * EXCLUDE (superseded) FROM evaluations WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_traces AS
SELECT * EXCLUDE (superseded) FROM traces WHERE NOT superseded;

CREATE OR REPLACE VIEW latest_marks AS
SELECT * EXCLUDE (superseded) FROM marks WHERE NOT superseded;

-- What people said of each run, as it stands.
CREATE OR REPLACE VIEW run_marks AS
SELECT
    r.run_id,
    coalesce(list(m.value ORDER BY m.value) FILTER (m.mark = 'tag'), []) AS tags,
    coalesce(list(m.value ORDER BY m.happened_at, m.value) FILTER (m.mark = 'note'), []) AS notes,
    coalesce(bool_or(m.mark = 'archive'), false) AS is_archived
FROM latest_runs r
LEFT JOIN (SELECT * FROM latest_marks WHERE is_set) m USING (run_id)
GROUP BY r.run_id;

CREATE OR REPLACE VIEW processes AS
SELECT run_id, role, host, pid, writer, kinds, lines, bad_lines, first_at, last_at
FROM ledger;

-- The answers with the judgement that counts now: the one written last, so that a later grade supersedes an older one.
CREATE OR REPLACE VIEW graded_answers AS
SELECT
    a.run_id, a.update, a.benchmark, a.split, a.problem_id, a.sample_index,
    coalesce(g.verdict, 'not_scored') AS verdict, g.score, g.extracted, g.well_formed, g.lenient, g.error,
    g.grader, g.version,
    a.prompt_tokens, a.completion_tokens, a.finish_reason, a.sample_file, a.sample_row, a.answer_key
FROM latest_answers a
LEFT JOIN (SELECT * FROM latest_grades WHERE is_current) g USING (run_id, answer_key);

CREATE OR REPLACE VIEW problem_scores_computed AS
SELECT
    s.run_id, s.update, s.benchmark, s.split, s.problem_id, p.cluster,
    s.n_answers, s.n_scored, s.n_passed, s.n_answers - s.n_scored AS n_unscored,
    s.n_passed / nullif(s.n_scored, 0) AS accuracy,
    from_fixed(s.score) / nullif(s.n_score, 0) AS score,
    s.lenient_accuracy, s.format_rate, s.truncated_rate, s.completion_tokens
FROM (
    SELECT
        run_id, update, benchmark, split, problem_id,
        count(*) AS n_answers,
        count(*) FILTER (verdict <> 'not_scored') AS n_scored,
        count(*) FILTER (verdict = 'pass') AS n_passed,
        sum(fixed(score)) FILTER (verdict <> 'not_scored') AS score,
        count(score) FILTER (verdict <> 'not_scored') AS n_score,
        avg((lenient = 'pass')::INTEGER) FILTER (verdict <> 'not_scored' AND lenient <> 'not_scored')
            AS lenient_accuracy,
        avg(well_formed::INTEGER) FILTER (verdict <> 'not_scored') AS format_rate,
        -- What was generated, judged or not.
        avg((finish_reason = 'length')::INTEGER) AS truncated_rate,
        avg(completion_tokens) AS completion_tokens
    FROM graded_answers
    GROUP BY run_id, update, benchmark, split, problem_id
) s
LEFT JOIN latest_problems p USING (run_id, benchmark, split, problem_id);

CREATE OR REPLACE VIEW problem_scores AS SELECT * FROM problem_scores_stored;

CREATE OR REPLACE VIEW scores_computed AS
SELECT
    run_id, update, benchmark, split,
    from_fixed(t.accuracy) / nullif(t.n_scored_problems, 0) AS accuracy,
    -- sqrt(sum of squared deviations, each summed over its cluster, * C / (C - 1)) / n
    CASE WHEN len(t.units) > 1 THEN sqrt(
        list_sum(list_transform(
            t.units, lambda u: from_fixed(u.accuracy - u.n * t.accuracy / t.n_scored_problems) ** 2
        )) * len(t.units) / (len(t.units) - 1)
    ) / t.n_scored_problems END AS standard_error,
    from_fixed(t.score) / nullif(t.n_score, 0) AS score,
    from_fixed(t.lenient_accuracy) / nullif(t.n_lenient, 0) AS lenient_accuracy,
    from_fixed(t.format_rate) / nullif(t.n_format, 0) AS format_rate,
    from_fixed(t.truncated_rate) / t.n_problems AS truncated_rate,
    from_fixed(t.completion_tokens) / t.n_problems AS completion_tokens,
    t.n_problems, t.n_scored_problems, coalesce(len(t.units), 0) AS n_clusters, t.n_answers, t.n_unscored,
    t.n_unscored / t.n_answers AS unscored_rate,
    e.samples_per_problem,
    -- Whole: the evaluation says it ended, and every answer it announced is here.
    coalesce(e.problems = t.n_problems AND e.problems * e.samples_per_problem = t.n_answers, false) AS complete,
    e.rollout_tokens, e.reference_tokens, e.teacher_tokens, e.auxiliary_tokens, e.trained_tokens,
    e.flop, e.wall_seconds, e.gpu_seconds,
    e.seconds AS evaluation_seconds, e.happened_at AS evaluated_at
FROM (
    SELECT
        run_id, update, benchmark, split,
        sum(n_problems)::BIGINT AS n_problems,
        sum(n_scored_problems)::BIGINT AS n_scored_problems,
        sum(n_answers)::BIGINT AS n_answers,
        sum(n_unscored)::BIGINT AS n_unscored,
        sum(accuracy) AS accuracy,
        sum(score) AS score, sum(n_score)::BIGINT AS n_score,
        sum(lenient_accuracy) AS lenient_accuracy, sum(n_lenient)::BIGINT AS n_lenient,
        sum(format_rate) AS format_rate, sum(n_format)::BIGINT AS n_format,
        sum(truncated_rate) AS truncated_rate,
        sum(completion_tokens) AS completion_tokens,
        list({'accuracy': accuracy, 'n': n_scored_problems} ORDER BY unit) FILTER (n_scored_problems > 0) AS units
    FROM (
        -- Summed within a cluster; a problem that shares none is a cluster of its own.
        SELECT
            run_id, update, benchmark, split, coalesce('c:' || cluster, 'p:' || problem_id) AS unit,
            count(*) AS n_problems, count(accuracy) AS n_scored_problems,
            sum(n_answers) AS n_answers, sum(n_unscored) AS n_unscored,
            sum(fixed(accuracy)) AS accuracy,
            sum(fixed(score)) AS score, count(score) AS n_score,
            sum(fixed(lenient_accuracy)) AS lenient_accuracy, count(lenient_accuracy) AS n_lenient,
            sum(fixed(format_rate)) AS format_rate, count(format_rate) AS n_format,
            sum(fixed(truncated_rate)) AS truncated_rate,
            sum(fixed(completion_tokens)) AS completion_tokens
        FROM problem_scores_stored
        GROUP BY run_id, update, benchmark, split, unit
    )
    GROUP BY run_id, update, benchmark, split
) t
LEFT JOIN latest_evaluations e USING (run_id, update, benchmark, split);

CREATE OR REPLACE VIEW scores AS SELECT * FROM scores_stored;

-- 1 - C(n-c, k) / C(n, k) and C(c, k) / C(n, k) as products, for k = 1, 2, 4, ... and k = n.
CREATE OR REPLACE VIEW pass_at_k AS
SELECT
    run_id, update, benchmark, split, k,
    avg(1 - list_product(list_transform(range(k), lambda i: (n_scored - n_passed - i) / (n_scored - i))))
        FILTER (n_scored >= k) AS pass_at_k,
    avg(list_product(list_transform(range(k), lambda i: (n_passed - i) / (n_scored - i))))
        FILTER (n_scored >= k) AS pass_hat_k,
    count(*) FILTER (n_scored >= k) AS n_problems,
    count(*) FILTER (n_scored < k) AS n_excluded
FROM problem_scores
JOIN (
    SELECT run_id, update, benchmark, split,
           unnest(list_distinct(list_append(list_transform(range(0, 1 + floor(log2(n))::BIGINT), lambda i: 2 ** i), n)))
               ::BIGINT AS k
    FROM (SELECT *, ceil(n_answers / n_problems) AS n FROM scores)
) USING (run_id, update, benchmark, split)
GROUP BY run_id, update, benchmark, split, k;

-- What a scored answer votes for: right answers are one answer however written, wrong ones are told apart by what was
-- read, and answers from which nothing was read do not vote (NULL).
CREATE OR REPLACE MACRO vote(verdict, extracted) AS
    CASE WHEN verdict = 'pass' THEN 'right' ELSE 'wrong: ' || extracted END;

-- The answer given most often, ties broken at random. A problem on which nobody votes is not answered and counts 0.
CREATE OR REPLACE VIEW majority AS
SELECT
    run_id, update, benchmark, split,
    avg(score) AS maj_at_n, count(*) AS n_problems, count(*) FILTER (most = 0) AS n_without_votes, max(n) AS n
FROM (
    SELECT
        run_id, update, benchmark, split, problem_id, sum(votes)::BIGINT AS n,
        coalesce(max(votes) FILTER (said IS NOT NULL), 0) AS most,
        CASE WHEN coalesce(max(votes) FILTER (said = 'right'), 0) = most AND most > 0
            THEN 1 / len(list_filter(list(votes) FILTER (said IS NOT NULL), lambda v: v = most))
            ELSE 0
        END AS score
    FROM (
        SELECT run_id, update, benchmark, split, problem_id, vote(verdict, extracted) AS said, count(*) AS votes
        FROM graded_answers
        WHERE verdict <> 'not_scored'
        GROUP BY ALL
    )
    GROUP BY run_id, update, benchmark, split, problem_id
)
GROUP BY run_id, update, benchmark, split;

-- Events are in the order of their sequence, which goes on from attempt to attempt. Clocks do not decide: a run may be
-- resumed on a host whose clock is behind.
CREATE OR REPLACE VIEW run_status AS
SELECT
    run_id,
    arg_max(status, (sequence, attempt, written_at, writer, seq)) AS status,
    arg_max(happened_at, (sequence, attempt, written_at, writer, seq)) AS status_at,
    arg_max(coalesce(error, ''), (sequence, attempt, written_at, writer, seq)) AS error,
    max(attempt) AS attempts
FROM run_events
GROUP BY run_id;

-- A plan as it stands: its newest edition, and of each cell and seed the run recorded last.
CREATE OR REPLACE VIEW plan_cells AS
SELECT
    c.plan, c.plan_hash, c.position, c.label, c.axes, c.is_control, c.run_id, c.base_run_id, c.overrides, c.tags,
    c.tuning, r.method, r.model, r.seed,
    coalesce(s.status, 'unknown') AS status,
    c.written_at
FROM latest_cells c
JOIN latest_runs r USING (run_id)
LEFT JOIN run_status s USING (run_id)
JOIN (
    SELECT plan, arg_max(plan_hash, (written_at, writer, seq)) AS plan_hash FROM latest_cells GROUP BY plan
) newest USING (plan, plan_hash)
QUALIFY row_number() OVER (
    PARTITION BY c.plan, c.label, c.axes, r.seed ORDER BY c.written_at DESC, c.writer DESC, c.seq DESC
) = 1;

-- What tables call a run, by the plan that recorded it last.
CREATE OR REPLACE VIEW run_labels AS
SELECT
    r.run_id, coalesce(s.status, 'unknown') AS status, s.status_at, nullif(s.error, '') AS error, s.attempts,
    c.plan, c.label, r.method, r.model, r.seed, coalesce(c.is_control, false) AS is_control, c.base_run_id,
    r.created_at
FROM latest_runs r
LEFT JOIN run_status s USING (run_id)
LEFT JOIN (
    SELECT * FROM latest_cells
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY written_at DESC, writer DESC, seq DESC) = 1
) c USING (run_id);

CREATE OR REPLACE VIEW run_overview AS
WITH steps_done AS (
    SELECT run_id, max(update) AS update, max(attempt) AS attempt, sum(non_finite_metrics)::BIGINT AS non_finite
    FROM latest_step_costs GROUP BY run_id
), writers AS (
    SELECT
        run_id,
        count(DISTINCT (host, pid)) AS processes,
        sum(bad_lines)::BIGINT AS bad_lines,
        max(last_at) AS last_activity
    FROM ledger WHERE role IS DISTINCT FROM 'user' GROUP BY run_id  -- a tag is no activity of the run
), graded AS (
    SELECT run_id, sum(n_answers)::BIGINT AS answers, sum(n_unscored)::BIGINT AS unscored FROM scores GROUP BY run_id
)
SELECT
    r.run_id, r.status, r.status_at, r.error,
    r.plan, r.label, r.method, r.model, r.seed, r.is_control, r.base_run_id,
    coalesce(d.update, 0) AS updates,
    l.rollout_tokens, l.reference_tokens, l.teacher_tokens, l.auxiliary_tokens, l.trained_tokens, l.flop,
    l.wall_seconds, l.gpu_seconds,
    coalesce(g.answers, 0) AS answers,
    g.unscored / g.answers AS unscored_rate,
    coalesce(d.non_finite, 0) AS non_finite_metrics,
    coalesce(w.processes, 0) AS processes,
    coalesce(w.bad_lines, 0) AS bad_lines,
    greatest(coalesce(r.attempts, 1), coalesce(d.attempt, 1)) AS attempts,
    r.created_at, w.last_activity
FROM run_labels r
LEFT JOIN steps_done d USING (run_id)
LEFT JOIN latest_step_costs l ON l.run_id = d.run_id AND l.update = d.update
LEFT JOIN writers w USING (run_id)
LEFT JOIN graded g USING (run_id);

CREATE OR REPLACE VIEW final_scores AS
SELECT
    r.plan, r.label, r.is_control, r.method, r.model, r.seed, r.base_run_id,
    coalesce(d.trained_updates, 0) AS trained_updates,
    s.* EXCLUDE (complete)
FROM scores s
JOIN run_labels r USING (run_id)
LEFT JOIN (SELECT run_id, max(update) AS trained_updates FROM latest_step_costs GROUP BY run_id) d USING (run_id)
WHERE s.complete AND r.status = 'done'
QUALIFY s.update = max(s.update) OVER (PARTITION BY s.run_id, s.benchmark, s.split);

-- Trials are cells of the plan "<name>:tuning", so that no table of the plan mixes them with its own runs. Those of an
-- edition that is no longer the plan's are left out.
CREATE OR REPLACE VIEW tuning_trials AS
WITH chosen AS (
    SELECT DISTINCT plan, label, unnest(from_json(tuning -> '$.chosen', '["VARCHAR"]')) AS run_id FROM plan_cells
), scored AS (
    -- A benchmark without a score leaves the run without one.
    SELECT run_id, split, CASE WHEN count(accuracy) = count(*) THEN avg(accuracy) END AS accuracy
    FROM final_scores GROUP BY run_id, split
)
SELECT
    n.plan, t.plan_hash, t.position, t.tuning ->> '$.of' AS label, t.axes, t.seed, t.run_id, t.status,
    s.split, s.accuracy,
    (n.plan, t.tuning ->> '$.of', t.run_id) IN (SELECT (plan, label, run_id) FROM chosen) AS is_chosen,
    o.updates, o.rollout_tokens, o.reference_tokens, o.teacher_tokens, o.auxiliary_tokens, o.trained_tokens,
    o.flop, o.wall_seconds, o.gpu_seconds, o.error
FROM plan_cells t
JOIN (
    SELECT regexp_replace(plan, ':tuning$', '') AS plan, arg_max(plan_hash, (written_at, writer, seq)) AS plan_hash
    FROM latest_cells GROUP BY ALL
) n ON t.plan = n.plan || ':tuning' AND t.plan_hash = n.plan_hash
JOIN run_overview o USING (run_id)
LEFT JOIN scored s ON s.run_id = t.run_id;

-- What a plan took in all, finished or not: the runs of its table and the trials that chose their settings, apart.
CREATE OR REPLACE VIEW plan_costs AS
SELECT
    plan, min(position) AS position, label, is_tuning, count(*) AS runs,
    sum(coalesce(rollout_tokens, 0))::BIGINT AS rollout_tokens,
    sum(coalesce(reference_tokens, 0))::BIGINT AS reference_tokens,
    sum(coalesce(teacher_tokens, 0))::BIGINT AS teacher_tokens,
    sum(coalesce(auxiliary_tokens, 0))::BIGINT AS auxiliary_tokens,
    sum(coalesce(trained_tokens, 0))::BIGINT AS trained_tokens,
    sum(flop) AS flop, sum(wall_seconds) AS wall_seconds, sum(gpu_seconds) AS gpu_seconds
FROM (
    SELECT c.plan, c.position, c.label, false AS is_tuning, o.* EXCLUDE (plan, label)
    FROM plan_cells c JOIN run_overview o USING (run_id)
    WHERE NOT ends_with(c.plan, ':tuning')
    UNION ALL BY NAME
    SELECT *, true AS is_tuning FROM tuning_trials
)
GROUP BY plan, label, is_tuning;

-- Scores along training. Update 0 of a run that did not evaluate its start is read from the untrained model's run.
CREATE OR REPLACE VIEW curves AS
WITH own AS (
    SELECT * FROM scores WHERE complete
), starts AS (
    SELECT r.run_id, b.run_id AS source_run_id, b.* EXCLUDE (run_id)
    FROM (SELECT run_id, base_run_id FROM run_labels WHERE base_run_id IS NOT NULL) r
    JOIN own b ON b.run_id = r.base_run_id AND b.update = 0
    ANTI JOIN (SELECT run_id, benchmark, split FROM own WHERE update = 0) o
        ON o.run_id = r.run_id AND o.benchmark = b.benchmark AND o.split = b.split
)
SELECT
    r.plan, r.label, r.is_control, r.method, r.model, r.seed, c.run_id, c.benchmark, c.split, c.update,
    CASE WHEN c.update = 0 THEN coalesce(c.rollout_tokens, 0) ELSE c.rollout_tokens END AS rollout_tokens,
    CASE WHEN c.update = 0 THEN coalesce(c.teacher_tokens, 0) ELSE c.teacher_tokens END AS teacher_tokens,
    CASE WHEN c.update = 0 OR coalesce(c.rollout_tokens, c.reference_tokens, c.teacher_tokens) IS NOT NULL
        THEN coalesce(c.rollout_tokens, 0) + coalesce(c.reference_tokens, 0) + coalesce(c.teacher_tokens, 0)
            + coalesce(c.auxiliary_tokens, 0)
    END AS total_tokens,
    CASE WHEN c.update = 0 THEN coalesce(c.trained_tokens, 0) ELSE c.trained_tokens END AS trained_tokens,
    CASE WHEN c.update = 0 THEN coalesce(c.wall_seconds, 0) ELSE c.wall_seconds END AS wall_seconds,
    CASE WHEN c.update = 0 THEN coalesce(c.gpu_seconds, 0) ELSE c.gpu_seconds END AS gpu_seconds,
    CASE WHEN c.update = 0 THEN coalesce(c.flop, 0) ELSE c.flop END AS flop,
    c.accuracy, c.standard_error, c.score, c.lenient_accuracy, c.format_rate, c.truncated_rate, c.completion_tokens,
    c.n_problems, c.n_answers, c.n_unscored, c.unscored_rate, c.from_base, c.source_run_id
FROM (
    SELECT *, run_id AS source_run_id, false AS from_base FROM own
    UNION ALL BY NAME
    SELECT *, true AS from_base FROM starts
) c
JOIN run_labels r USING (run_id);

CREATE OR REPLACE VIEW metric_curves AS
SELECT
    s.run_id, s.name, s.update, s.value,
    c.rollout_tokens, c.teacher_tokens, c.trained_tokens,
    CASE WHEN coalesce(c.rollout_tokens, c.reference_tokens, c.teacher_tokens) IS NOT NULL
        THEN coalesce(c.rollout_tokens, 0) + coalesce(c.reference_tokens, 0) + coalesce(c.teacher_tokens, 0)
            + coalesce(c.auxiliary_tokens, 0)
    END AS total_tokens,
    c.flop, c.wall_seconds, c.gpu_seconds
FROM latest_steps s
JOIN latest_step_costs c USING (run_id, update);

-- Every pair of cells of one plan on the problems both answered: same seed, or a run against its untrained model.
CREATE OR REPLACE VIEW ablations AS
WITH final_problems AS (
    SELECT p.run_id, p.benchmark, p.split, p.problem_id, p.cluster, p.accuracy
    FROM problem_scores p
    JOIN final_scores f USING (run_id, update, benchmark, split)
    WHERE p.accuracy IS NOT NULL
), pairs AS (
    SELECT a.plan, a.position, a.label, a.axes, a.seed, a.run_id,
           b.label AS baseline_label, b.axes AS baseline_axes, b.run_id AS baseline_run_id
    FROM plan_cells a
    JOIN plan_cells b ON a.plan = b.plan AND a.run_id <> b.run_id
    WHERE CASE WHEN b.method = 'base' THEN b.run_id = a.base_run_id ELSE a.method <> 'base' AND a.seed = b.seed END
      AND (a.label <> b.label OR a.axes <> b.axes)
), differences AS (
    SELECT p.*, x.benchmark, x.split, x.problem_id, x.cluster,
           x.accuracy, y.accuracy AS baseline_accuracy, x.accuracy - y.accuracy AS delta
    FROM pairs p
    JOIN final_problems x ON x.run_id = p.run_id
    JOIN final_problems y ON y.run_id = p.baseline_run_id
        AND y.benchmark = x.benchmark AND y.split = x.split AND y.problem_id = x.problem_id
), per_cluster AS (
    SELECT plan, position, label, axes, seed, run_id, baseline_label, baseline_axes, baseline_run_id, benchmark, split,
           count(*) AS n, sum(accuracy) AS accuracy, sum(baseline_accuracy) AS baseline_accuracy,
           sum(delta) AS delta, sum(delta - mean_delta) AS deviation
    FROM (SELECT *, avg(delta) OVER (PARTITION BY plan, run_id, baseline_run_id, label, axes, baseline_label,
                                     baseline_axes, benchmark, split) AS mean_delta FROM differences)
    GROUP BY plan, position, label, axes, seed, run_id, baseline_label, baseline_axes, baseline_run_id, benchmark,
             split, coalesce('c:' || cluster, 'p:' || problem_id)
)
SELECT
    plan, position, label, axes, seed, baseline_label, baseline_axes, benchmark, split,
    sum(n)::BIGINT AS n_problems,
    sum(accuracy) / sum(n) AS accuracy,
    sum(baseline_accuracy) / sum(n) AS baseline_accuracy,
    sum(delta) / sum(n) AS delta,
    CASE WHEN count(*) > 1 THEN sqrt(sum(deviation * deviation) * count(*) / (count(*) - 1)) / sum(n) END
        AS standard_error,
    run_id, baseline_run_id
FROM per_cluster
GROUP BY plan, position, label, axes, seed, run_id, baseline_label, baseline_axes, baseline_run_id, benchmark, split;
