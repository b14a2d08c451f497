"""Finds out whether the model that a request names is the one that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.errors import ApiError, ErrorKind

if TYPE_CHECKING:
    from router_svc.served_model import ServedModel


def check_served_name(model: ServedModel, name: str) -> None:
    """Raises ApiError (404) for a name that `model` is not served under."""
    served = model.info.served_names
    if name not in served:
        raise ApiError(
            ErrorKind.NOT_FOUND,
            f"the model {name!r} is not served here; served: {', '.join(served)}",
            param="model",
            code="model_not_found",
        )
