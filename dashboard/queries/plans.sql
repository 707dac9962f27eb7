-- Every plan as it stands: its cells and runs by state, the newest first.
SELECT
    c.plan,
    count(DISTINCT (c.label, c.axes)) AS cells,
    count(DISTINCT c.run_id) AS runs,
    count(DISTINCT c.run_id) FILTER (c.status = 'done') AS done,
    count(DISTINCT c.run_id) FILTER (c.status = 'running') AS running,
    count(DISTINCT c.run_id) FILTER (c.status = 'queued') AS queued,
    count(DISTINCT c.run_id) FILTER (c.status IN ('failed', 'stopped')) AS failed_or_stopped,
    count(DISTINCT c.run_id) FILTER (c.status NOT IN ('done', 'running', 'queued', 'failed', 'stopped')) AS not_started,
    max(o.last_activity) AS last_activity,
    max(c.written_at) AS planned_at
FROM plan_cells c
JOIN run_overview o USING (run_id)
GROUP BY c.plan
ORDER BY planned_at DESC, c.plan
