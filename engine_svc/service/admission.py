"""From a client's message to a submission that may run, its grammar compiled."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from google.rpc.code_pb2 import Code

from engine_svc.constraints.compiler import CompilerBusyError, ConstraintError
from engine_svc.service.errors import RequestError, invalid, queue_full
from engine_svc.service.submission import parse_submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine.v1 import engine_pb2 as pb

    from engine_svc.adapters.registry import Adapters
    from engine_svc.constraints.compiler import GrammarCompiler
    from engine_svc.constraints.grammar import Grammar
    from engine_svc.service.metrics import EngineMetrics
    from engine_svc.service.submission import RequestLimits, Submission

_RETRY_SECONDS = 1.0


class Admission:
    """Checks requests, and counts those that it refuses."""

    def __init__(
        self,
        limits: RequestLimits,
        draw_seed: Callable[[], int],
        grammars: GrammarCompiler,
        metrics: EngineMetrics,
        adapters: Adapters,
    ) -> None:
        self._adapters = adapters
        self._limits = limits
        self._draw_seed = draw_seed
        self._grammars = grammars
        self._metrics = metrics

    def check(self, request: pb.GenerateRequest) -> Submission:
        """The submission of a request, whose constraint is not compiled. Raises RequestError."""
        try:
            adapter = self._adapters.find(request.lora, request.expect.adapter_version)
            return parse_submission(request, self._limits, self._draw_seed, adapter)
        except RequestError as error:
            is_invalid = error.status.code == Code.INVALID_ARGUMENT
            self._metrics.on_rejected("invalid" if is_invalid else "expectation")
            raise

    async def prepare(self, request: pb.GenerateRequest) -> Submission:
        """The submission of a request, ready to run. Raises RequestError."""
        received = monotonic()
        submission = self.check(request)
        constraint = submission.constraint
        if constraint is None:
            return submission
        try:
            submission = constrained(submission, await self._grammars.compile(constraint))
        except ConstraintError as error:
            self._metrics.on_rejected("invalid")
            raise invalid(f"constraint.{constraint.kind}", str(error)) from error
        except CompilerBusyError as error:
            self._metrics.on_rejected("queue_full")
            raise queue_full(str(error), _RETRY_SECONDS) from error
        except RequestError:
            self._metrics.on_rejected("invalid")
            raise
        prepared_in = monotonic() - received
        timeout = submission.timeout
        if timeout is not None:
            # It runs from receipt. What is left is never nothing, so that the engine tells of its
            # end.
            timeout = max(timeout - prepared_in, 1e-3)
        return replace(submission, timeout=timeout, prepared_in=prepared_in)


def constrained(submission: Submission, grammar: Grammar) -> Submission:
    """The submission with its constraint compiled.

    Raises RequestError where an output to be resumed does not follow the grammar.
    """
    ended = set()
    for choice, tokens in submission.resumed.items():
        matcher = grammar.new_matcher(tokens)
        if choice not in submission.finished and matcher.error is not None:
            raise invalid("resume", f"the output of choice {choice} does not follow the constraint")
        if matcher.ended:
            ended.add(choice)
    sampling = replace(submission.sampling, grammar=grammar)
    return replace(submission, sampling=sampling, ended_by_grammar=frozenset(ended))
