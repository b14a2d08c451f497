"""What PEFT calls an adapter's tensors, and which matrices of the decoder they change.

base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight    ─▶ A of layers.3.q
╰─────────────╯ ╰────────── module ────────────╯      ╰ or .default.weight, in older files
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from engine_svc.models.errors import ModelError
from engine_svc.models.registry import FAMILIES
from kernels.lora import ADAPTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")
# Where the decoder stands: in a model with a head, bare, or inside one that also sees.
_LAYER = re.compile(
    r"((model|language_model\.model|model\.language_model)\.)?"
    r"layers\.(?P<layer>0|[1-9][0-9]{0,4})\.(?P<rest>.+)",
    re.ASCII,
)
_EMBEDDINGS = (".lora_embedding_A", ".lora_embedding_B", ".embed_tokens.", ".lm_head.")
_MAGNITUDES = ".lora_magnitude_vector"


class Pair(NamedTuple):
    """The tensors of one matrix of the decoder, by their names in the file."""

    module: str  # the whole name
    a: str
    b: str


def pairs_of(tensors: Iterable[str], family: str, num_layers: int) -> dict[str, Pair]:
    """An adapter's tensors by the canonical names of the matrices ("layers.3.q") that they change.

    Raises ModelError, naming the tensor, for one that has no such place, and for A without B.
    """
    parts = _parts(family)
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for tensor in tensors:
        match = _TENSOR.fullmatch(tensor)
        if match is None or any(part in f".{match['module']}." for part in _EMBEDDINGS):
            raise ModelError(_misfit(tensor))
        module, side = match["module"], match["side"]
        sides = found.setdefault(_canonical(tensor, module, parts, num_layers), {})
        if side in sides:
            raise ModelError(f"{tensor} and {sides[side][1]} are for the same matrix")
        sides[side] = module, tensor
    if not found:
        raise ModelError("the adapter has no tensors")
    for sides in found.values():
        for side, other in (("A", "B"), ("B", "A")):
            if side not in sides:
                raise ModelError(f"{sides[other][1]} has no lora_{side} beside it")
    return {
        name: Pair(sides["A"][0], sides["A"][1], sides["B"][1]) for name, sides in found.items()
    }


def check_targets(targets: Iterable[str], family: str) -> None:
    """Raises ModelError for a module, listed as adapted, that no layer has."""
    parts = _parts(family)
    known = {module.rpartition(".")[2] for module in parts}
    for target in targets:
        if target.rpartition(".")[2] not in known:
            raise ModelError(
                f"target_modules has {target[:80]}, which the model has not; it has "
                f"{', '.join(sorted(known))}"
            )


def _parts(family: str) -> Mapping[str, str]:
    """The parts of a layer that may have adapters, by their modules in a Hugging Face model."""
    names = next(f.hf_layer_names for f in FAMILIES if f.name == family)
    return {names[part].removesuffix(".weight"): part for part in ADAPTED}


def _canonical(tensor: str, module: str, parts: Mapping[str, str], num_layers: int) -> str:
    match = _LAYER.fullmatch(module)
    if match is None or match["rest"] not in parts:
        raise ModelError(
            f"{tensor} is for a module that the model has not; adapters change "
            f"{', '.join(parts)} of its layers"
        )
    if int(match["layer"]) >= num_layers:
        raise ModelError(f"{tensor} is for layer {match['layer']}; the model has {num_layers}")
    return f"layers.{match['layer']}.{parts[match['rest']]}"


def _misfit(tensor: str) -> str:
    if any(part in f".{tensor}." for part in _EMBEDDINGS):
        return f"{tensor}: embeddings and heads have no adapters"
    if _MAGNITUDES in tensor:
        return f"{tensor}: weights that are also scaled by magnitudes (DoRA) cannot be served"
    return f"{tensor} is no tensor of a LoRA adapter (…lora_A.weight, …lora_B.weight)"
