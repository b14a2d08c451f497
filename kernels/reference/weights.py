"""A decoder's weights as the reference back end holds them, and how they get there.

    source       q  k  v         gate  up         each asked for once, checked, rounded to the dtype
                 └──┼──┘           └─┬─┘
    held           qkv            gate_up         one product instead of three, or two; packed

On their way weights are on the host a part at a time (`kernels.reference.weight_copy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kernels.backend import StoredTensor
from kernels.coded import keeps_codes
from kernels.reference.linear import DenseLinear, Linear, matrix_bytes, pack, packs
from kernels.reference.rms_norm import norm_scale
from kernels.reference.weight_copy import copy_weight, weight_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from kernels.backend import OnProgress, WeightSource
    from kernels.coded import CodedTensor
    from kernels.spec import DecoderSpec

    MakeLinear: TypeAlias = Callable[[torch.Tensor, torch.Tensor | None], Linear]
    MakeCoded: TypeAlias = Callable[[Sequence[CodedTensor], torch.Tensor | None], Linear]

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Norms are in the form of `norm_scale`."""

    attn_norm: torch.Tensor  # [hidden]
    qkv: Linear  # [(num_heads + 2 · num_kv_heads) · head_dim, hidden]
    qk_norm: torch.Tensor | None  # [num_heads + num_kv_heads, head_dim]
    o: Linear
    post_attn_norm: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Linear  # [2 · intermediate, hidden]
    down: Linear
    post_mlp_norm: torch.Tensor | None

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its matrices."""
        return self.qkv, self.o, self.gate_up, self.down

    @property
    def nbytes(self) -> int:
        """Bytes of all its weights."""
        norms = (
            self.attn_norm,
            self.qk_norm,
            self.post_attn_norm,
            self.mlp_norm,
            self.post_mlp_norm,
        )
        held = sum(norm.nbytes for norm in norms if norm is not None)
        return held + sum(linear.nbytes for linear in self.linears)


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights. A tied head that is packed is a second copy of the embedding table."""

    embed: torch.Tensor  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: Linear

    @property
    def nbytes(self) -> int:
        """Bytes of all weights, what is shared counted once."""
        shared = isinstance(self.head, DenseLinear) and self.head.weight is self.embed
        head = 0 if shared else self.head.nbytes
        held = self.embed.nbytes + self.final_norm.nbytes + head
        return held + sum(layer.nbytes for layer in self.layers)


def planned_bytes(spec: DecoderSpec, dtype: torch.dtype) -> int:
    """What `DecoderWeights.nbytes` will be."""
    shapes = spec.weight_shapes()
    norm_type = torch.float32 if spec.norm_offset else dtype
    total = 0
    for name, shape in shapes.items():
        kind = name.rpartition(".")[2]
        if kind in ("q_norm", "k_norm"):
            heads = spec.num_heads if kind == "q_norm" else spec.num_kv_heads
            total += heads * shape[0] * norm_type.itemsize
        elif len(shape) == 1:
            is_norm = kind.endswith("norm")
            total += shape[0] * (norm_type if is_norm else dtype).itemsize
        elif kind == "embed":
            total += shape[0] * shape[1] * dtype.itemsize
        elif kind in ("o", "down", "lm_head"):
            total += matrix_bytes(shape, dtype)
    q_rows = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    for rows in (q_rows, 2 * spec.intermediate_size):
        total += spec.num_layers * matrix_bytes((rows, spec.hidden_size), dtype)
    if spec.tied_head and packs(dtype):
        total += matrix_bytes(shapes["embed"], dtype)
    return total


class _Reader:
    """Takes weights from a source, checked and rounded, and reports how far it is."""

    def __init__(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        dtype: torch.dtype,
        on_progress: OnProgress,
        device: torch.device,
        make_linear: MakeLinear,
        make_coded: MakeCoded | None,
    ) -> None:
        self._shapes = spec.weight_shapes()
        self._source = source
        self._dtype = dtype
        self._on_progress = on_progress
        self._device = device
        self._make_linear = make_linear
        self._make_coded = make_coded
        self._bytes_done = 0

    def read(self, name: str, into: torch.Tensor | None = None) -> torch.Tensor:
        """One weight in the model's type, written `into` a tensor of its shape if that is given.

        Raises ValueError for a wrong shape or values.
        """
        stored = self._load(name)
        if into is None:
            weight = weight_on(stored, self._dtype, self._device)
        else:
            copy_weight(stored, weight := into)
        # One sum is cheap; it can overflow by itself, so that only a full look condemns a weight.
        if not weight.sum(dtype=torch.float32).isfinite() and not weight.isfinite().all():
            kind = str(self._dtype).removeprefix("torch.")
            raise ValueError(f"weight {name} has values that are not finite in {kind}")
        self._count(stored.nbytes)
        return weight

    def _load(self, name: str) -> StoredTensor | CodedTensor:
        stored, expected = self._source.load(name), self._shapes[name]
        if stored.shape != expected:
            raise ValueError(
                f"weight {name} has shape {list(stored.shape)}, the model needs {list(expected)}"
            )
        return stored

    def _count(self, num_bytes: int) -> None:
        self._bytes_done += num_bytes
        self._on_progress(self._bytes_done, self._source.total_bytes)

    def norm(self, name: str, offset: float) -> torch.Tensor:
        """The scale of one norm."""
        return norm_scale(self.read(name), offset, self._dtype)

    def stacked(self, names: Sequence[str]) -> torch.Tensor:
        """Weights of equal width one upon the other."""
        rows = sum(self._shapes[name][0] for name in names)
        width = self._shapes[names[0]][1:]
        out = torch.empty(rows, *width, dtype=self._dtype, device=self._device)
        start = 0
        for name in names:
            stop = start + self._shapes[name][0]
            self.read(name, out[start:stop])
            start = stop
        return out

    def linear(self, names: Sequence[str], *, bias: bool) -> Linear:
        """Matrices stacked along their outputs, with their biases if there are any."""
        biases = [f"{name}_bias" for name in names]
        schemes = [self._source.scheme(name) for name in names]
        if self._make_coded is not None and keeps_codes(schemes, self._shapes[names[0]][1]):
            loaded = [self._load(name) for name in names]
            tensors = [each for each in loaded if not isinstance(each, StoredTensor)]
            stacked = self.stacked(biases) if bias else None
            try:
                made = self._make_coded(tensors, stacked)
            except ValueError as error:
                raise ValueError(f"weight {' or '.join(names)}: {error}") from error
            self._count(sum(tensor.nbytes for tensor in tensors))
            return made
        weight = self.read(names[0]) if len(names) == 1 else self.stacked(names)
        return self.made(weight, self.stacked(biases) if bias else None)

    def made(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """A matrix as the back end multiplies with it."""
        return self._make_linear(weight, bias)


def load_weights(
    spec: DecoderSpec,
    source: WeightSource,
    dtype: torch.dtype,
    on_progress: OnProgress,
    *,
    device: torch.device = _CPU,
    make_linear: MakeLinear = pack,
    make_coded: MakeCoded | None = None,
) -> DecoderWeights:
    """Reads every weight of `spec.weight_shapes()` once, brings it to the device and packs it.

    `make_linear` makes of a matrix and its bias, if any, what the back end multiplies with;
    `make_coded` does of matrices of `keeps_codes`, which without it are decoded. Raises ValueError
    that names the weight if its shape is not the spec's or a value is not finite.
    """
    reader = _Reader(spec, source, dtype, on_progress, device, make_linear, make_coded)
    embed = reader.read("embed")
    layers = tuple(_load_layer(spec, reader, f"layers.{i}.") for i in range(spec.num_layers))
    final_norm = reader.norm("final_norm", spec.norm_offset)
    head = reader.made(embed) if spec.tied_head else reader.linear(["lm_head"], bias=False)
    return DecoderWeights(embed, layers, final_norm, head)


def _load_layer(spec: DecoderSpec, reader: _Reader, prefix: str) -> LayerWeights:
    def norm(name: str) -> torch.Tensor:
        return reader.norm(prefix + name, spec.norm_offset)

    def linear(*names: str, bias: bool) -> Linear:
        return reader.linear([prefix + name for name in names], bias=bias)

    qk_norm = None
    if spec.qk_norm:
        q_norm, k_norm = norm("q_norm"), norm("k_norm")
        qk_norm = torch.cat(
            (q_norm.expand(spec.num_heads, -1), k_norm.expand(spec.num_kv_heads, -1))
        )
    return LayerWeights(
        attn_norm=norm("attn_norm"),
        qkv=linear("q", "k", "v", bias=spec.qkv_bias),
        qk_norm=qk_norm,
        o=linear("o", bias=spec.output_bias),
        post_attn_norm=norm("post_attn_norm") if spec.post_norms else None,
        mlp_norm=norm("mlp_norm"),
        gate_up=linear("gate", "up", bias=spec.mlp_bias),
        down=linear("down", bias=spec.mlp_bias),
        post_mlp_norm=norm("post_mlp_norm") if spec.post_norms else None,
    )
