"""A sampler that says what it was told to: for tests, and to replay recorded completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluation.samplers.base import Completion, SampleRequest, SamplingParams


@dataclass(frozen=True)
class ScriptedSampler:
    """The Sampler port over a function from a request to the ids to answer with.

    ``script`` must be a pure function of the request (its prompt and seed). Its ids are cut after the first end id
    (``end_ids`` or ``SamplingParams.stop_token_ids``) and at ``max_new_tokens``, as a model's would be; a script that
    ends sooner is completed by nothing and counts as ``length``. Every log-probability is ``logprob``.
    """

    script: Callable[[SampleRequest], Sequence[int]]
    end_ids: frozenset[int] = frozenset()
    logprob: float = 0.0

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One completion for each request, in the order of the requests; ValueError for an empty prompt."""
        return [self._complete(index, request, params) for index, request in enumerate(requests)]

    def _complete(self, index: int, request: SampleRequest, params: SamplingParams) -> Completion:
        if not request.prompt_ids:
            raise ValueError(f"request {index}: the prompt is empty")
        ends = self.end_ids | set(params.stop_token_ids)
        ids: list[int] = []
        for token in list(self.script(request))[: params.max_new_tokens]:
            ids.append(token)
            if token in ends:
                break
        reason = "stop" if ids and ids[-1] in ends else "length"
        return Completion(tuple(ids), (self.logprob,) * len(ids), reason)
