"""An encoder's weights as the reference back end holds them: float32, matrices packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from kernels.encoder import ClassifierSpec
from kernels.reference.linear import Linear, matrix_bytes, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.backend import OnProgress, WeightSource
    from kernels.encoder import EncoderActivation, EncoderSpec

    Norm: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # scale and bias, [hidden]

_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class EncoderLayerWeights:
    """One layer."""

    qkv: Linear  # [3 · hidden, hidden]
    o: Linear
    attn_norm: Norm
    up: Linear  # with the activation in the product
    down: Linear
    mlp_norm: Norm

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its matrices."""
        return self.qkv, self.o, self.up, self.down


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """All weights."""

    embed: torch.Tensor  # [vocab, hidden]
    position_embed: torch.Tensor
    type_embed: torch.Tensor | None
    embed_norm: Norm
    layers: tuple[EncoderLayerWeights, ...]
    head: tuple[Linear, ...]  # hidden layer and outputs of a classifier; else empty

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        tensors = [self.embed, self.position_embed, *self.embed_norm]
        tensors += [] if self.type_embed is None else [self.type_embed]
        tensors += [t for layer in self.layers for t in (*layer.attn_norm, *layer.mlp_norm)]
        linears = [linear for layer in self.layers for linear in layer.linears]
        held = sum(tensor.nbytes for tensor in tensors)
        return held + sum(linear.nbytes for linear in (*linears, *self.head))


def planned_bytes(spec: EncoderSpec) -> int:
    """`EncoderWeights.nbytes` of what `load_weights` will give. Reads nothing."""
    total = 0
    for name, shape in spec.weight_shapes().items():
        kind = name.rpartition(".")[2]
        if kind in ("q", "k", "v"):
            continue
        plain = len(shape) == 1 or kind.endswith("embed")
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        total += count * _ELEMENT_BYTES if plain else matrix_bytes(shape, torch.float32)
    qkv = (3 * spec.hidden_size, spec.hidden_size)
    return total + spec.num_layers * matrix_bytes(qkv, torch.float32)


class _Reader:
    """Takes weights from a source, checked, and reports how far it is."""

    def __init__(self, spec: EncoderSpec, source: WeightSource, on_progress: OnProgress) -> None:
        self._shapes = spec.weight_shapes()
        self._source = source
        self._on_progress = on_progress
        self._bytes_done = 0

    def read(self, name: str) -> torch.Tensor:
        """One weight. Raises ValueError for a wrong shape or values."""
        stored = self._source.load(name)
        expected = self._shapes[name]
        if stored.shape != expected:
            raise ValueError(
                f"weight {name} has shape {list(stored.shape)}, the model needs {list(expected)}"
            )
        weight = torch.from_numpy(stored.to_float32())
        if not weight.isfinite().all():
            raise ValueError(f"weight {name} has values that are not finite")
        self._bytes_done += stored.nbytes
        self._on_progress(self._bytes_done, self._source.total_bytes)
        return weight

    def norm(self, name: str) -> Norm:
        """The scale and the bias of one norm."""
        return self.read(name), self.read(f"{name}_bias")

    def linear(self, *names: str, activation: EncoderActivation | None = None) -> Linear:
        """Matrices stacked along their outputs, with their biases."""
        weight = _stacked([self.read(name) for name in names])
        bias = _stacked([self.read(f"{name}_bias") for name in names])
        return pack(weight, bias, activation)


def _stacked(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def load_weights(
    spec: EncoderSpec, source: WeightSource, on_progress: OnProgress
) -> EncoderWeights:
    """Reads every weight of `spec.weight_shapes()` once and packs it.

    Raises ValueError that names the weight if its shape is not the spec's or a value is not finite.
    """
    reader = _Reader(spec, source, on_progress)
    head: tuple[Linear, ...] = ()
    if isinstance(spec.output, ClassifierSpec):
        head = reader.linear("head", activation=spec.output.activation), reader.linear("out")
    return EncoderWeights(
        embed=reader.read("embed"),
        position_embed=reader.read("position_embed"),
        type_embed=reader.read("type_embed") if spec.num_token_types else None,
        embed_norm=reader.norm("embed_norm"),
        layers=tuple(_load_layer(spec, reader, f"layers.{i}.") for i in range(spec.num_layers)),
        head=head,
    )


def _load_layer(spec: EncoderSpec, reader: _Reader, prefix: str) -> EncoderLayerWeights:
    return EncoderLayerWeights(
        qkv=reader.linear(*(prefix + name for name in ("q", "k", "v"))),
        o=reader.linear(f"{prefix}o"),
        attn_norm=reader.norm(f"{prefix}attn_norm"),
        up=reader.linear(f"{prefix}up", activation=spec.activation),
        down=reader.linear(f"{prefix}down"),
        mlp_norm=reader.norm(f"{prefix}mlp_norm"),
    )
