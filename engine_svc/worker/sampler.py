"""Picks one token for each row that samples, in the decoder or here.

    plain rows    ─► PickInputs ─────────────► the decoder's step
    other rows    ─► logits ─► edits (logit_edits) ─► draw (kernels.reference.sampling)

Plain rows have neither edits nor log-probabilities to report. A grammar's mask comes last, either
way: nothing overrules it. Both ways take the same uniform
number (random_stream) to the same definition: what a request samples depends on its logits, seed,
choice and position, and on nothing else in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.constraints.grammar import num_words
from engine_svc.sampling_params import UNSATISFIABLE
from engine_svc.worker.logit_edits import LogitEdits
from engine_svc.worker.random_stream import uniforms
from kernels.backend import PickInputs
from kernels.reference.sampling import draw_token, mask_logits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from engine_svc.sampling_params import SamplingParams

# Below this temperature a request is greedy.
GREEDY_TEMPERATURE = 1e-5

NOT_FINITE = "logits are not finite"
ALL_MASKED = (
    f"{UNSATISFIABLE}allowed_token_ids, bad_words, logit_bias, min_tokens and the constraint "
    "together give none a probability above zero"
)

OVERFLOW = f"{UNSATISFIABLE}the penalties and the logit_bias make a logit overflow"


class SamplingState:
    """What the sampler keeps of one request between steps."""

    def __init__(
        self,
        params: SamplingParams,
        choice: int,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        self.params = params
        self.choice = choice
        self.greedy = params.temperature < GREEDY_TEMPERATURE or params.top_k == 1
        self.edits = LogitEdits(params, prompt_token_ids, output_token_ids, vocab_size)
        grammar = params.grammar
        self.matcher = None if grammar is None else grammar.new_matcher(output_token_ids)
        self._mask_words = num_words(vocab_size)

    @property
    def plain(self) -> bool:
        """Whether the next token follows from the logits alone, and they are not asked for."""
        return self.params.logprobs is None and not self.edits.active

    @property
    def num_outputs(self) -> int:
        """Tokens sampled so far, those of earlier attempts included; the next one's position."""
        return self.edits.num_outputs

    def append(self, token_id: int) -> None:
        """Takes note of a token that was sampled."""
        self.edits.append(token_id)
        if self.matcher is not None:
            self.matcher.consume(token_id)

    def edited(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Logits [vocab_size] as the next token is to be picked from, a copy if they differ.

        A grammar that allows nothing more ends the output, whatever else is asked for.
        """
        row = self.edits.apply(logits)
        if self.matcher is None:
            return row
        params = self.params
        may_end = bool(params.eos_token_ids) and self.num_outputs >= params.min_tokens
        mask = np.zeros(self._mask_words, dtype=np.uint32)
        self.matcher.fill(mask, may_end=may_end)
        if self.matcher.only_ends(mask):
            row = logits
        row = row.copy()
        mask_logits(row, mask)
        return row


@dataclass(frozen=True, slots=True)
class Picks:
    """What came out of a batch, by row: a token, or the reason why there is none."""

    token_ids: dict[int, int]
    failures: dict[int, str]


def pick_inputs(
    rows: Sequence[int],
    states: Sequence[SamplingState],
    num_guessed: Sequence[int],
    masks: npt.NDArray[np.uint32] | None = None,
    mask_of: Sequence[int] = (),
) -> PickInputs:
    """How the decoder is to pick tokens from plain rows of its step, one state a row.

    A row's token comes `num_guessed` positions after the request's next one. `masks` are those of
    `PickInputs`, None where no row has one.
    """
    params = [state.params for state in states]
    temperature, top_p, min_p, draw = np.array(
        [
            [0.0 if state.greedy else state.params.temperature for state in states],
            [p.top_p for p in params],
            [p.min_p for p in params],
            [0.0] * len(params),
        ]
    )
    drawing = [i for i, state in enumerate(states) if not state.greedy]
    if drawing:
        draw[drawing] = _draws([states[i] for i in drawing], [num_guessed[i] for i in drawing])
    return PickInputs(
        rows=np.array(rows, dtype=np.int32),
        temperature=temperature,
        top_k=np.array([p.top_k for p in params], dtype=np.int32),
        top_p=top_p,
        min_p=min_p,
        draw=draw,
        masks=masks,
        mask_of=None if masks is None else np.array(mask_of, dtype=np.int32),
    )


def sample(logits: npt.NDArray[np.float32], states: Sequence[SamplingState]) -> Picks:
    """Picks for logits [num_rows, vocab_size], which stay as they are; one state a row."""
    picks = Picks({}, {})
    drawing = [i for i, state in enumerate(states) if not state.greedy]
    numbers = _draws([states[i] for i in drawing], [0] * len(drawing))
    draws = dict(zip(drawing, numbers.tolist(), strict=True))
    for i, state in enumerate(states):
        if not np.isfinite(logits[i]).all():
            picks.failures[i] = NOT_FINITE
            continue
        row = state.edited(logits[i])
        best = row.max()
        if state.matcher is not None and state.matcher.error is not None:
            picks.failures[i] = UNSATISFIABLE + state.matcher.error
        elif not np.isfinite(best):
            picks.failures[i] = ALL_MASKED if best == -np.inf else OVERFLOW
        elif state.greedy:
            picks.token_ids[i] = int(row.argmax())
        else:
            params = state.params
            picks.token_ids[i] = draw_token(
                row,
                draws[i],
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
            )
    return picks


def _draws(states: Sequence[SamplingState], num_guessed: Sequence[int]) -> npt.NDArray[np.float64]:
    """A uniform number for each, [num_states]."""
    return uniforms(
        [state.params.seed for state in states],
        [state.choice for state in states],
        [state.num_outputs + n for state, n in zip(states, num_guessed, strict=True)],
    )
