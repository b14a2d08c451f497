"""The models that a router serves, by the names that clients ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from router_svc.errors import ApiError, ErrorKind, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from router_svc.served_model import ServedModel


class NamesModel(Protocol):
    """A request that may name its model."""

    @property
    def model(self) -> str:
        """The name."""
        ...

    def HasField(self, field_name: Literal["model"], /) -> bool:  # noqa: N802 -- protobuf's name
        """Whether it is given."""
        ...


class Models:
    """One or several models. A name is known once an engine was there that has it."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """`models` must not be empty."""
        self._models = tuple(models)

    def of(self, request: NamesModel) -> ServedModel:
        """The model that a request is for. Raises ApiError as `find` does."""
        return self.find(request.model if request.HasField("model") else None)

    def find(self, name: str | None) -> ServedModel:
        """The model of a name; without one, the only model.

        Raises ApiError: 404 for an unknown name, 400 where there are several to choose from.
        """
        if name is None:
            if len(self._models) == 1:
                return self._models[0]
            raise invalid("model", f"model is required; served: {self._shown()}")
        if len(self._models) == 1:
            _ = self._models[0].info  # says so if no engine was ever there
        for served, model in self.named():
            if served == name:
                return model
        raise ApiError(
            ErrorKind.NOT_FOUND,
            f"the model {name!r} is not served here; served: {self._shown()}",
            param="model",
            code="model_not_found",
        )

    def named(self) -> Iterator[tuple[str, ServedModel]]:
        """Every name with its model, aliases included."""
        for model in self._models:
            info = model.engine.info
            if info is not None:
                for name in info.served_names:
                    yield name, model

    def _shown(self) -> str:
        return ", ".join(name for name, _ in self.named())
