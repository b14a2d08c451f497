"""How the matrices of a quantised checkpoint are held, for the operator."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kernels.coded import INT4, INT8, UINT4
from kernels.cpu.packing import DENSE_SCHEMES, MatrixFormat
from kernels.cpu.weight_layout import plan_weights

if TYPE_CHECKING:
    from engine_svc.loader.opened import OpenedModel
    from kernels.backend import Precision

_KEPT = {
    (INT4, MatrixFormat.GROUP4): "in int4, codes as they are",
    (INT4, MatrixFormat.GROUP4MIN): "in int4 with a least value, codes as they are",
    (UINT4, MatrixFormat.GROUP4MIN): "in int4 with a least value, codes as they are",
    (INT4, MatrixFormat.GROUP8): "in int8, codes as they are",
    (UINT4, MatrixFormat.GROUP8): "in int8, codes as they are",
    (INT8, MatrixFormat.GROUP8): "in int8, codes as they are",
}
_ROUNDED = {
    MatrixFormat.BFLOAT16: "decoded to bfloat16",
    MatrixFormat.INT8: "decoded and rounded to int8",
    MatrixFormat.GROUP8: "decoded and rounded to int8",
    MatrixFormat.GROUP4: "decoded and rounded to int4",
}


def kept_notice(opened: OpenedModel, precision: Precision, *, packs: bool) -> str | None:
    """What becomes of quantised matrices; None for a checkpoint that has none.

    `packs`: the C++ back end holds them; the other one decodes all. Raises ValueError for a
    precision that is none.
    """
    if opened.quantization is None:
        return None
    counts: Counter[str] = Counter()
    if packs:
        for slot in plan_weights(opened.spec, opened.source, precision).matrices.values():
            for part in slot.parts:
                scheme = opened.source.scheme(part.name)
                kept = (scheme, slot.format)
                counts[
                    _dense(slot.format)
                    if scheme in DENSE_SCHEMES
                    else _KEPT.get(kept) or _ROUNDED[slot.format]
                ] += 1
    else:
        for name, shape in opened.spec.weight_shapes().items():
            if len(shape) == 2:
                dense = opened.source.scheme(name) in DENSE_SCHEMES
                counts["dense" if dense else f"decoded to {precision.dtype}"] += 1
    told = "; ".join(f"{count} {how}" for how, count in counts.most_common())
    return f"matrices quantised by {opened.quantization} are held so: {told}"


def _dense(format_: MatrixFormat) -> str:
    return "dense" if format_ is MatrixFormat.BFLOAT16 else f"dense, now in {format_.name.lower()}"
