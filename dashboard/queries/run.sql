-- One run: its state, costs, specification and provenance.
SELECT o.*, r.spec, r.provenance
FROM run_overview o
JOIN latest_runs r USING (run_id)
WHERE o.run_id = $run_id
