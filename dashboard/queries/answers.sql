-- The answers of one evaluation with their verdicts, in the order of the problems.
SELECT
    a.problem_id, a.sample_index, a.verdict, a.score, a.extracted, p.answer AS expected, p.prompt,
    a.well_formed, a.lenient, a.finish_reason, a.prompt_tokens, a.completion_tokens,
    a.grader, a.version AS grader_version, a.error, a.sample_file, a.sample_row
FROM graded_answers a
LEFT JOIN latest_problems p USING (run_id, benchmark, split, problem_id)
WHERE a.run_id = $run_id AND a.benchmark = $benchmark AND a.split = $split AND a.update = $update
ORDER BY a.sample_file, a.sample_row
