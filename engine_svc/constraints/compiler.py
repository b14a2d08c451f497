"""Compiles constraints on threads of its own, once each, and keeps the latest.

    compile(kind, text) ── known? ──▶ Grammar
                        └─ being compiled? ── wait with the others
                        └─ queue ▶ thread: to_lark ▶ llguidance ▶ first mask

A grammar that cannot be enforced is an error of the one who sent it. What llguidance would spend
time or memory on without end is bounded by its own limits, by the size of the text, and by how long
a request waits; the rest of the engine waits for none of it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from octavo import grammars
from octavo.lark import GrammarError

from engine_svc.constraints.grammar import Grammar
from engine_svc.constraints.vocabulary import VocabularyError, read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from llguidance import LLTokenizer

    from engine_svc.constraints.constraint import Constraint

    T = TypeVar("T")

MAX_SECONDS = 5.0
MAX_WAITING = 64
_NUM_THREADS = 2
_NICE = 10  # below what computes steps
_MAX_CACHED = 256
_MAX_CACHED_BYTES = 2 << 20  # of the constraints' texts; compiled, one takes up to 100 times that
# Of one matcher, which takes 6 MB with so many.
_MAX_LEXER_STATES = 50_000
_MAX_STEP_FUEL = 100_000  # about 7 ms of work for a mask


class ConstraintError(ValueError):
    """A constraint that cannot be enforced, worded for the one who sent it."""


class CompilerBusyError(Exception):
    """Too many constraints are waiting to be compiled."""


class GrammarCompiler:
    """Grammars for one model's tokeniser. To be used from one event loop."""

    def __init__(
        self,
        path: Path,
        vocab_size: int,
        end_ids: frozenset[int],
        *,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        """`path` is the model's, whose tokeniser is read at `warm_up` or when the first constraint
        comes. `end_ids` are the model's end tokens. No request waits longer than `max_seconds` for
        its grammar."""
        self._path = path
        self._vocab_size = vocab_size
        self._end_ids = end_ids
        self._max_seconds = max_seconds
        self._threads = _Threads(_NUM_THREADS)
        self._tokenizer_lock = threading.Lock()
        self._tokenizer: LLTokenizer | VocabularyError | None = None
        self._cache: OrderedDict[Constraint, Grammar] = OrderedDict()
        self._cached_bytes = 0
        self._pending: dict[Constraint, asyncio.Future[Grammar]] = {}
        self._started: set[Constraint] = set()

    def warm_up(self) -> None:
        """Has the tokeniser read, so that the first constraint need not wait for it.

        Part of that keeps the interpreter to itself (0.1 s for 49k tokens, 1.4 s for 262k), which
        is best over before there are streams that it could hold up.
        """
        self._threads.submit(self._open_tokenizer)

    async def compile(self, constraint: Constraint) -> Grammar:
        """The grammar of a constraint.

        Raises ConstraintError, also if it takes longer than a request may wait, and
        CompilerBusyError.
        """
        known = self._cache.get(constraint)
        if known is not None:
            self._cache.move_to_end(constraint)
            return known
        if self._tokenizer is None:  # reading it is not the constraint's fault
            await asyncio.wrap_future(self._threads.submit(self._open_tokenizer))
        pending = self._pending.get(constraint)
        if pending is None:
            if len(self._pending) >= MAX_WAITING:
                raise CompilerBusyError(f"{MAX_WAITING} constraints are waiting to be compiled")
            pending = asyncio.wrap_future(self._threads.submit(lambda: self._build(constraint)))
            self._pending[constraint] = pending
            pending.add_done_callback(lambda done: self._take(constraint, done))
        try:
            async with asyncio.timeout(self._max_seconds):  # wait_for can lose a cancellation
                return await asyncio.shield(pending)
        except TimeoutError:
            if constraint not in self._started:
                raise CompilerBusyError("constraints come faster than they compile") from None
            raise ConstraintError(
                f"takes longer to compile than the limit of {self._max_seconds:g} s"
            ) from None

    def close(self) -> None:
        """Ends the threads once they have done what they are at."""
        self._threads.close()

    def _take(self, constraint: Constraint, done: asyncio.Future[Grammar]) -> None:
        del self._pending[constraint]
        self._started.discard(constraint)
        if done.cancelled() or done.exception() is not None:
            return
        self._cache[constraint] = done.result()
        self._cached_bytes += constraint.num_bytes
        while len(self._cache) > _MAX_CACHED or self._cached_bytes > _MAX_CACHED_BYTES:
            oldest, _ = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.num_bytes

    def _build(self, constraint: Constraint) -> Grammar:
        from llguidance import LLMatcher, LLParserLimits

        self._started.add(constraint)
        try:
            lark = grammars.to_lark(constraint.kind, constraint.text, constraint.choices)
        except GrammarError as error:
            raise ConstraintError(str(error)) from error
        tokenizer = self._open_tokenizer()
        limits = LLParserLimits(
            max_lexer_states=_MAX_LEXER_STATES, step_lexer_fuel=_MAX_STEP_FUEL, verbose_errors=False
        )
        start = LLMatcher(tokenizer, lark, log_level=0, limits=limits)
        if not start.is_error():
            start.compute_bitmask()  # shows what cannot begin at all, and builds what masks need
        if start.is_error():
            why = grammars.explain(start.get_error(), constraint.kind, constraint.text)
            raise ConstraintError(f"cannot be enforced: {why}")
        return Grammar(start, tokenizer.vocab_size, frozenset(tokenizer.eos_tokens))

    def _open_tokenizer(self) -> LLTokenizer:
        with self._tokenizer_lock:
            if self._tokenizer is None:
                try:
                    self._tokenizer = _tokenizer(self._path, self._vocab_size, self._end_ids)
                except (VocabularyError, OSError) as error:
                    self._tokenizer = VocabularyError(str(error))
            if isinstance(self._tokenizer, VocabularyError):
                raise ConstraintError(f"cannot be enforced for this model: {self._tokenizer}")
            return self._tokenizer


class _Words:
    """A vocabulary as llguidance takes it. It is never asked to tokenise: nothing is forced."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_ids: list[int], end_id: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = end_id

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError("grammars leave it to the model how text is cut into tokens")


def _tokenizer(path: Path, vocab_size: int, end_ids: frozenset[int]) -> LLTokenizer:
    """llguidance's view of a model's tokeniser. Raises VocabularyError and OSError."""
    from llguidance import LLTokenizer, TokenizerWrapper

    vocabulary = read_vocabulary(path)
    tokens = vocabulary.tokens[:vocab_size]
    special = [token_id for token_id in vocabulary.special_ids if token_id < vocab_size]
    # A model without an end token ends with another one that no text contains.
    ends = sorted(i for i in end_ids if i < len(tokens)) or special[:1]
    if not ends:
        raise VocabularyError("its tokeniser has no token that could end an output")
    special = sorted({*special, *ends})
    words = TokenizerWrapper(_Words(tokens, special, ends[0]))
    return LLTokenizer(words, eos_token=ends)


class _Threads:
    """Daemon threads that take jobs in turn: they hold up neither steps nor the process's end."""

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = count
        self._running = False

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Has a job done; its future gets the outcome, on the job's thread."""
        if not self._running:
            self._running = True
            previous = threading.stack_size(grammars.STACK_BYTES)
            try:
                for i in range(self._count):
                    threading.Thread(target=self._work, name=f"grammars-{i}", daemon=True).start()
            finally:
                threading.stack_size(previous)
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 -- it is the future's to tell
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(run)
        return future

    def close(self) -> None:
        """Ends the threads after the jobs before this."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # where threads have no priorities of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (job := self._jobs.get()) is not None:
            job()
