"""Triton as the kernels take it: typed where we call it, and allowed to be absent.

Triton ships no types and is installed with a GPU build of torch only. Kernel modules take `tl`,
`kernel` and `constexpr` from here, so that this is the one place that knows both. Inside a kernel
every value is a `tl.tensor`, a tile, a scalar or an address, which is Any to the type checker: it
checks launchers, and Triton's own compiler checks kernels.

    @kernel(batch_dependent=("num_rows",))
    def _double(x_ptr: tl.tensor, num_rows: tl.tensor, SIZE: tl.constexpr) -> None: ...

    _double[(programs,)](x, num_rows, SIZE=64, num_warps=4)

Without Triton, kernel modules import all the same, and a launch raises RuntimeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Kernel", "constexpr", "kernel", "next_power_of_2", "tl"]


class Kernel(Protocol):
    """A compiled-on-demand kernel, or a function that kernels call."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """The launch over a grid of programs; takes arguments, num_warps and num_stages."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call from within another kernel."""
        ...


try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    triton = None
    tl = None


class _Absent:
    """A kernel that Triton would have compiled."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, _grid: tuple[int, ...]) -> Callable[..., object]:
        raise self._error()

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise self._error()

    def _error(self) -> RuntimeError:
        return RuntimeError(f"{self._name} needs triton, which is not installed")


def kernel(*, batch_dependent: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Kernel]:
    """Makes a kernel of a function in Triton's language.

    batch_dependent: integer arguments that change from step to step. Triton compiles a variant of
    its own for 1 and for multiples of 16 of any other integer: a pause in the middle of serving,
    and other code for a row that must have the same bits in every batch.
    """

    def decorate(function: Callable[..., Any]) -> Kernel:
        if triton is None:
            return _Absent(function.__name__)
        made: Kernel = triton.jit(do_not_specialize=list(batch_dependent))(function)
        return made

    return decorate


def constexpr(value: float) -> Any:
    """A constant of a module that its kernels may use."""
    return value if tl is None else tl.constexpr(value)


def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least n, the length that Triton wants of a tile's side."""
    return 1 << max(n - 1, 0).bit_length()
