"""A sampler that says what it was told to: for tests, and to replay recorded completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluation.samplers.base import Completion, SampleRequest, SamplingParams
from evaluation.samplers.stopping import Decode, Stops


@dataclass(frozen=True)
class ScriptedSampler:
    """The Sampler port over a function from a request to the ids to answer with.

    ``script`` must be a pure function of the request (its prompt and seed). Its ids are cut after the first end id or
    stop and at ``max_new_tokens``, as a model's would be; a script that ends sooner is completed by nothing and counts
    as ``length``. Every log-probability is ``logprob``. Stop texts need ``decode``.
    """

    script: Callable[[SampleRequest], Sequence[int]]
    end_ids: frozenset[int] = frozenset()
    logprob: float = 0.0
    decode: Decode | None = None

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """One completion for each request, in the order of the requests; ValueError for an empty prompt."""
        return [self._complete(index, request, request.params or params) for index, request in enumerate(requests)]

    def _complete(self, index: int, request: SampleRequest, params: SamplingParams) -> Completion:
        if not request.prompt_ids:
            raise ValueError(f"request {index}: the prompt is empty")
        ids = tuple(self.script(request))[: params.max_new_tokens]
        kept = Stops(params, self.end_ids, self.decode).length(ids)
        return Completion(ids[:kept], (self.logprob,) * len(ids[:kept]), "length" if kept is None else "stop")
