-- The views that queries can read, with their columns.
SELECT table_name AS view, string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns()
WHERE NOT internal AND table_name IN (SELECT view_name FROM duckdb_views() WHERE NOT internal)
GROUP BY table_name
ORDER BY table_name
