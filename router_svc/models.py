"""The models that a router serves, and their adapters, by the names that clients ask for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, Protocol

from router_svc.errors import ApiError, ErrorKind, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from router_svc.served_model import ServedModel

log = logging.getLogger(__name__)


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
    """One or several models. A name is known once an engine was there that has it.

    Among adapters of one name the first one stays; one that is named like a model has no name.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """`models` must not be empty."""
        self._models = tuple(models)
        self._owners: dict[str, ServedModel] = {}  # of adapters' names
        self._clashes: set[str] = set()  # that were logged
        for model in self._models:
            model.engine.on_info = self._notice_clashes

    def of(self, request: NamesModel) -> ServedModel:
        """The model that a request is for. Raises ApiError as `find` does."""
        return self.find(request.model if request.HasField("model") else None)

    def base_of(self, request: NamesModel) -> ServedModel:
        """The same for what no adapter can do. Raises ApiError for an adapter's name, too."""
        model = self.of(request)
        if model.adapter is not None:
            raise invalid(
                "model",
                f"{model.name} is a LoRA adapter, which generates only; {model.base_name} is the"
                " model",
            )
        return model

    def find(self, name: str | None) -> ServedModel:
        """The model of a name, or of an adapter's name; without one, the only model.

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
        if (owner := self._owner(name)) and (adapter := owner.engine.adapters.find(name)):
            return owner.with_adapter(adapter)
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

    def adapted(self) -> Iterator[ServedModel]:
        """Every adapter that requests may name, with its model."""
        taken = {name for name, _ in self.named()}
        for model in self._models:
            for adapter in model.engine.adapters.all():
                if adapter.name not in taken and self._owner(adapter.name) is model:
                    yield model.with_adapter(adapter)

    def _owner(self, adapter: str) -> ServedModel | None:
        """The model whose engines had an adapter of this name first, of those that have one."""
        owner = self._owners.get(adapter)
        if owner is None or owner.engine.adapters.find(adapter) is None:
            having = (model for model in self._models if model.engine.adapters.find(adapter))
            owner = next(having, None)
        if owner is None:
            self._owners.pop(adapter, None)
        else:
            self._owners[adapter] = owner
        return owner

    def _notice_clashes(self) -> None:
        names = {name for name, _ in self.named()}
        clashes = set()
        for model in self._models:
            for adapter in model.engine.adapters.all():
                owner = self._owner(adapter.name)
                if adapter.name in names:
                    why = "a model has this name"
                elif owner is not None and owner is not model:
                    why = f"{owner.base_name} has another of this name"
                else:
                    continue
                clashes.add(f"the adapter {adapter.name} of {model.base_name} is not used: {why}")
        for clash in sorted(clashes - self._clashes):
            log.error("%s", clash)
        self._clashes = clashes

    def _shown(self) -> str:
        adapters = (model.name for model in self.adapted())
        return ", ".join([*(name for name, _ in self.named()), *adapters])
