"""What an encoder computes, as data, and the seam of the back ends that compute it.

An encoder reads whole inputs: every token of an input sees every other. With x a row of the
residual stream, one layer of the BERT family (arXiv:1810.04805) is

    q, k, v = x·Wq + bq, x·Wk + bk, x·Wv + bv          heads of head_dim
    a = softmax(head_dim^-½ · q·kᵀ) · v                over the tokens of the input
    x = norm(x + a·Wo + bo) · attn_norm + attn_norm_bias
    x = norm(x + act(x·Wup + bup)·Wdown + bdown) · mlp_norm + mlp_norm_bias

with norm(x) = (x - mean(x)) / sqrt(var(x) + eps), and before the first layer

    x = norm(embed[token] + type_embed[token type] + position_embed[position]) · embed_norm + …

What an input gives is either its pooled rows or the classifier's outputs for its first row:

    act(x₀·Whead + bhead)·Wout + bout

Layout of one step, for inputs A and B, nothing padded:

    token_ids     [ a0 a1 a2 | b0 b1 ]       num_tokens = 5
    positions     [  0  1  2 |  0  1 ]
    token_types   [  0  0  1 |  0  0 ]
    input_starts  [  0         3     5 ]     input i owns rows [starts[i], starts[i + 1])
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kernels.backend import Float32s, Int32s, OnProgress, WeightSource

    Int64s: TypeAlias = npt.NDArray[np.int64]


class EncoderActivation(StrEnum):
    """Non-linearity of an encoder's MLP or head."""

    GELU = "gelu"  # exact, by the error function
    GELU_TANH = "gelu_tanh"
    RELU = "relu"
    TANH = "tanh"


class Pooling(StrEnum):
    """How the rows of an input become one. Names are sentence-transformers'."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"  # the sum over the square root of their number
    WEIGHTED_MEAN = "weightedmean"  # by position, counted from 1
    LAST_TOKEN = "lasttoken"


@dataclass(frozen=True, slots=True)
class PoolingSpec:
    """The vector of an input: its poolings one after another, then of length 1 if normalised."""

    modes: tuple[Pooling, ...]
    normalize: bool


class ScoreActivation(StrEnum):
    """What a classifier's outputs go through."""

    NONE = "none"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """The classifier over the first row; `activation` is of its hidden layer."""

    num_labels: int
    activation: EncoderActivation
    scores: ScoreActivation


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """A whole encoder. Sizes count elements; see the module's formulae."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int  # rows of the table of positions
    first_position: int  # row of an input's first token: RoBERTa's tables begin with unused rows
    num_token_types: int  # 0: there are none
    norm_eps: float
    activation: EncoderActivation
    output: PoolingSpec | ClassifierSpec

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.hidden_size // self.num_heads

    @property
    def max_position(self) -> int:
        """Tokens of the longest input that the table of positions has rows for."""
        return self.num_positions - self.first_position

    @property
    def output_size(self) -> int:
        """Elements of what an input gives."""
        if isinstance(self.output, ClassifierSpec):
            return self.output.num_labels
        return self.hidden_size * len(self.output.modes)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical names of all weights with their shapes; matrices are [out, in].

        This is the contract between loaders and back ends: a loader yields these names.
        """
        hidden, inner = self.hidden_size, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "embed": (self.vocab_size, hidden),
            "position_embed": (self.num_positions, hidden),
        }
        if self.num_token_types:
            shapes["type_embed"] = (self.num_token_types, hidden)
        shapes |= {"embed_norm": (hidden,), "embed_norm_bias": (hidden,)}
        layer: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("q", "k", "v", "o"), (hidden, hidden)),
            **{f"{name}_bias": (hidden,) for name in ("q", "k", "v", "o")},
            "attn_norm": (hidden,),
            "attn_norm_bias": (hidden,),
            "up": (inner, hidden),
            "up_bias": (inner,),
            "down": (hidden, inner),
            "down_bias": (hidden,),
            "mlp_norm": (hidden,),
            "mlp_norm_bias": (hidden,),
        }
        for i in range(self.num_layers):
            shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        if isinstance(self.output, ClassifierSpec):
            labels = self.output.num_labels
            shapes |= {"head": (hidden, hidden), "head_bias": (hidden,)}
            shapes |= {"out": (labels, hidden), "out_bias": (labels,)}
        return shapes


@dataclass(frozen=True, slots=True)
class EncoderInputs:
    """One step's inputs; see the module's picture. Arrays are contiguous, on the host."""

    token_ids: Int32s  # [num_tokens]
    positions: Int32s  # [num_tokens], counted from 0 in each input
    token_types: Int32s  # [num_tokens], 0 where the model has none
    input_starts: Int64s  # [num_inputs + 1]


@dataclass(frozen=True, slots=True)
class EncoderNeeds:
    """What an encoder will take, known before anything is loaded. All in bytes."""

    weights: int
    activations: int  # peak beside the weights, for a step of the largest size


class Encoder(Protocol):
    """A loaded model."""

    @property
    def weight_bytes(self) -> int:
        """Bytes the weights take as packed."""
        ...

    def encode(self, inputs: EncoderInputs) -> Float32s:
        """What each input gives, [num_inputs, output_size].

        It depends on the input's own tokens only, bit for bit, and not on what else is in the step.
        """
        ...


class EncoderBackend(Protocol):
    """Makes encoders."""

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        ...

    def plan(self, spec: EncoderSpec, *, max_num_tokens: int) -> EncoderNeeds:
        """What `load` will take, and a step of so many tokens. Reads no weight."""
        ...

    def load(self, spec: EncoderSpec, source: WeightSource, on_progress: OnProgress) -> Encoder:
        """Loads and packs the weights. Raises ValueError that names a wrong one."""
        ...
