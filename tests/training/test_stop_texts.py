"""Stop texts end rollouts and answers, in what is trained on and in what is graded."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow.parquet as parquet

from evaluation.samplers.base import SamplingParams
from tests.training.sessions import cache, open_session, small_run
from training.base_models import resolve_model
from training.checkpoint_evaluation import evaluate_segment
from training.learners.loading import fix_numerics, load_base, load_renderer

STOP = "="


def test_a_stop_text_ends_rollouts_and_answers_and_is_cut_from_what_is_graded(tmp_path: Path) -> None:
    spec = small_run("opsd", {"sampling.stop": (STOP,)})
    sampling = SamplingParams(max_new_tokens=34, temperature=0, stop=(STOP,))
    spec = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"sampling": sampling})})
    with closing(open_session(spec, tmp_path / "run")) as session:
        session.run_segment(1)
    evaluate_segment(spec, "run", tmp_path / "run", 1, cache=cache(), benchmarks_root=None, attempt=1)
    resolved = resolve_model(spec.model, cache())
    renderer = load_renderer(
        resolved, load_base(resolved.path, resolved.content_hash, fix_numerics(spec.compute)), spec.model.system_prompt
    )
    for kind in ("rollouts", "answers"):
        files = sorted((tmp_path / "run" / "samples").glob(f"{kind}*.parquet"))
        rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
        stopped = 0
        for row in rows:
            text = renderer.decode(row["token_ids"])
            assert row["completion"] == text.split(STOP)[0]
            assert STOP not in renderer.decode(row["token_ids"][:-1])
            stopped += STOP in text and row["finish_reason"] == "stop"
            assert STOP not in text or row["finish_reason"] == "stop"
        assert stopped >= 2, kind
