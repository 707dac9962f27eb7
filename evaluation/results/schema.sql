-- Tables of the results database. A cache of the spools: everything here can be made again from them.
-- No foreign keys and no indexes on fact tables: they slow bulk inserts and block ALTER TABLE.
-- Every fact carries where it came from: attempt, writer, seq, written_at; `superseded` is kept by the ingestor.

CREATE TABLE schema_version (
    schema_sha256 VARCHAR NOT NULL,
    views_sha256 VARCHAR NOT NULL,
    duckdb_version VARCHAR NOT NULL,
    database_id VARCHAR NOT NULL,
    revision BIGINT NOT NULL
);

CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    spec JSON NOT NULL,
    provenance JSON NOT NULL,
    created_at TIMESTAMP NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE cells (
    run_id VARCHAR NOT NULL,
    plan VARCHAR NOT NULL,
    plan_hash VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    label VARCHAR NOT NULL,
    is_control BOOLEAN NOT NULL,
    base_run_id VARCHAR,
    overrides JSON NOT NULL,
    axes JSON NOT NULL,
    tags VARCHAR[] NOT NULL,
    tuning JSON,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE run_events (
    run_id VARCHAR NOT NULL,
    sequence BIGINT NOT NULL,
    status VARCHAR NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    error VARCHAR,
    details JSON,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE step_costs (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    rollout_tokens BIGINT,
    reference_tokens BIGINT,
    teacher_tokens BIGINT,
    auxiliary_tokens BIGINT,
    trained_tokens BIGINT,
    flop DOUBLE,
    wall_seconds DOUBLE,
    gpu_seconds DOUBLE,
    non_finite_metrics BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE steps (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE rollouts (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    rollout_index BIGINT NOT NULL,
    problem_id VARCHAR NOT NULL,
    weights_version BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    truncated BOOLEAN NOT NULL,
    verdict VARCHAR NOT NULL,
    score DOUBLE,
    reward DOUBLE,
    sample_file VARCHAR,
    sample_row BIGINT,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE problems (
    run_id VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    benchmark_version VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    cluster VARCHAR,
    answer VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE answers (
    run_id VARCHAR NOT NULL,
    answer_key VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    finish_reason VARCHAR NOT NULL,
    sample_file VARCHAR NOT NULL,
    sample_row BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE grades (
    run_id VARCHAR NOT NULL,
    answer_key VARCHAR NOT NULL,
    grader VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    score DOUBLE,
    extracted VARCHAR,
    well_formed BOOLEAN,
    lenient VARCHAR,
    error VARCHAR,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false,
    is_current BOOLEAN NOT NULL DEFAULT true
);

CREATE TABLE evaluations (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    problems BIGINT NOT NULL,
    samples_per_problem BIGINT NOT NULL,
    seconds DOUBLE,
    rollout_tokens BIGINT,
    reference_tokens BIGINT,
    teacher_tokens BIGINT,
    auxiliary_tokens BIGINT,
    trained_tokens BIGINT,
    flop DOUBLE,
    wall_seconds DOUBLE,
    gpu_seconds DOUBLE,
    happened_at TIMESTAMP NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE traces (
    run_id VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index BIGINT NOT NULL,
    sample_file VARCHAR NOT NULL,
    sample_row BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,
    score DOUBLE,
    student_update BIGINT NOT NULL,
    term VARCHAR,
    divergence VARCHAR,
    mean_divergence DOUBLE,
    mean_forward_kl DOUBLE,
    mean_entropy DOUBLE,
    teacher VARCHAR,
    context VARCHAR NOT NULL,
    note VARCHAR,
    seconds DOUBLE,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE marks (
    run_id VARCHAR NOT NULL,
    mark VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    is_set BOOLEAN NOT NULL,
    author VARCHAR,
    happened_at TIMESTAMP NOT NULL,
    attempt INTEGER NOT NULL,
    writer VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    superseded BOOLEAN NOT NULL DEFAULT false
);

-- One row a spool file: how far it has been read. Changed in the same transaction as the facts read from it.
CREATE TABLE ledger (
    file VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    writer VARCHAR NOT NULL,
    host VARCHAR NOT NULL,
    pid BIGINT,
    role VARCHAR,
    consumed_bytes BIGINT NOT NULL,
    seen_bytes BIGINT NOT NULL,
    seen_mtime_ns BIGINT NOT NULL,
    fingerprint VARCHAR NOT NULL,
    lines BIGINT NOT NULL,
    bad_lines BIGINT NOT NULL,
    kinds VARCHAR[] NOT NULL,
    first_at TIMESTAMP,
    last_at TIMESTAMP
);

-- The compacted files whose spools have been read.
CREATE TABLE compacted (file VARCHAR NOT NULL);

CREATE TABLE quarantine (
    file VARCHAR NOT NULL,
    start_byte BIGINT NOT NULL,
    length BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    excerpt VARCHAR NOT NULL,
    found_at TIMESTAMP NOT NULL
);

-- The rows of the *_computed views, kept up to date by the ingestor; views.sql says why.
CREATE TABLE problem_scores_stored (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    cluster VARCHAR,
    n_answers BIGINT NOT NULL,
    n_scored BIGINT NOT NULL,
    n_passed BIGINT NOT NULL,
    n_unscored BIGINT NOT NULL,
    accuracy DOUBLE,
    score DOUBLE,
    lenient_accuracy DOUBLE,
    format_rate DOUBLE,
    truncated_rate DOUBLE NOT NULL,
    completion_tokens DOUBLE NOT NULL
);

CREATE TABLE scores_stored (
    run_id VARCHAR NOT NULL,
    update BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    accuracy DOUBLE,
    standard_error DOUBLE,
    score DOUBLE,
    lenient_accuracy DOUBLE,
    format_rate DOUBLE,
    truncated_rate DOUBLE NOT NULL,
    completion_tokens DOUBLE NOT NULL,
    n_problems BIGINT NOT NULL,
    n_scored_problems BIGINT NOT NULL,
    n_clusters BIGINT NOT NULL,
    n_answers BIGINT NOT NULL,
    n_unscored BIGINT NOT NULL,
    unscored_rate DOUBLE NOT NULL,
    samples_per_problem BIGINT,
    complete BOOLEAN NOT NULL,
    rollout_tokens BIGINT,
    reference_tokens BIGINT,
    teacher_tokens BIGINT,
    auxiliary_tokens BIGINT,
    trained_tokens BIGINT,
    flop DOUBLE,
    wall_seconds DOUBLE,
    gpu_seconds DOUBLE,
    evaluation_seconds DOUBLE,
    evaluated_at TIMESTAMP
);

-- Which facts of which runs are new and not settled yet; empty in every published snapshot.
CREATE TABLE unsettled (run_id VARCHAR NOT NULL, fact_table VARCHAR NOT NULL);
