"""How the matrices of a quantised checkpoint are held, for the operator."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from kernels.coded import FP8, FP8_WEIGHTS, INT4, INT8, UINT4, keeps_codes
from kernels.cpu.packing import DENSE_SCHEMES, MatrixFormat
from kernels.cpu.weight_layout import plan_weights

if TYPE_CHECKING:
    from engine_svc.loader.opened import OpenedModel
    from kernels.backend import Precision

_CODES_KEPT = {
    MatrixFormat.GROUP4: (INT4,),
    MatrixFormat.GROUP4MIN: (INT4, UINT4),
    MatrixFormat.GROUP8: (INT4, UINT4, INT8),
}
_NAMES = {
    MatrixFormat.BFLOAT16: "bfloat16",
    MatrixFormat.INT8: "int8",
    MatrixFormat.GROUP8: "int8",
    MatrixFormat.GROUP4: "int4",
    MatrixFormat.GROUP4MIN: "int4 with a least value",
}


def kept_notice(
    opened: OpenedModel,
    precision: Precision,
    backend: Literal["cpu", "cuda", "reference"],
    *,
    multiplies_fp8: bool = False,
) -> str | None:
    """What becomes of quantised matrices in a back end; None for a checkpoint that has none.

    `multiplies_fp8`: a GPU rounds activations to fp8 where the checkpoint means it to. Raises
    ValueError for a precision that is none.
    """
    if opened.quantization is None:
        return None
    if backend == "cpu":
        slots = plan_weights(opened.spec, opened.source, precision).matrices.values()
        held = [
            _packed(opened.source.scheme(part.name), slot.format)
            for slot in slots
            for part in slot.parts
        ]
    else:
        held = [
            _unpacked(
                opened.source.scheme(name),
                shape[1],
                precision,
                keeps=backend == "cuda" and precision.weights != "none",
                multiplies_fp8=multiplies_fp8,
            )
            for name, shape in opened.spec.weight_shapes().items()
            if len(shape) == 2
        ]
    told = "; ".join(f"{count} {how}" for how, count in Counter(held).most_common())
    return f"matrices quantised by {opened.quantization} are held so: {told}"


def _unpacked(
    scheme: str, num_cols: int, precision: Precision, *, keeps: bool, multiplies_fp8: bool
) -> str:
    """How a matrix is held by a back end that packs none."""
    if scheme in DENSE_SCHEMES:
        return "dense"
    if not (keeps and keeps_codes([scheme], num_cols)):
        return f"decoded to {precision.dtype}"
    if scheme not in (FP8, FP8_WEIGHTS):
        return "in 4 bits, codes as they are"
    both = scheme == FP8 and multiplies_fp8
    return f"in fp8, codes as they are, for activations in {'fp8' if both else precision.dtype}"


def _packed(scheme: str, format_: MatrixFormat) -> str:
    """How a matrix of a scheme is held in a format."""
    name, is_dense = _NAMES[format_], scheme in DENSE_SCHEMES
    if format_ is MatrixFormat.BFLOAT16:
        return "dense" if is_dense else f"decoded to {name}"
    if scheme in _CODES_KEPT.get(format_, ()):
        return f"in {name}, codes as they are"
    return f"{'dense' if is_dense else 'decoded'} and rounded to {name}"
