"""Every public service by reflection, over handlers that answer anything with an empty message."""

from collections.abc import AsyncIterator
from importlib import import_module
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from router_svc.codegen.model import snake
from router_svc.http.service import Service

_STEMS = sorted(
    path.name.removesuffix("_pb2.py")
    for path in files("octavo.inference.v1").iterdir()
    if path.name.endswith("_pb2.py")
)

SERVICES: list[ServiceDescriptor] = [
    service
    for stem in _STEMS
    for service in import_module(
        f"octavo.inference.v1.{stem}_pb2"
    ).DESCRIPTOR.services_by_name.values()
]

METHODS: list[MethodDescriptor] = [method for each in SERVICES for method in each.methods]


def easy_services() -> list[Service]:
    """All of them, each over a handler that answers at once."""
    found = []
    for each in SERVICES:
        name = snake(each.name)
        make = getattr(import_module(f"router_svc.gen.{name}_service"), f"{name}_service")
        found.append(make(_easy_handler(each)))
    return found


def _easy_handler(service: ServiceDescriptor) -> Any:
    answers = {snake(method.name): _easy_answer(method) for method in service.methods}
    return type("EasyHandler", (), answers)()


def _easy_answer(method: MethodDescriptor) -> Any:
    message = GetMessageClass(method.output_type)

    async def whole(_self: Any, _request: Any, _context: Any) -> Any:
        return message()

    async def stream(_self: Any, _request: Any, _context: Any) -> AsyncIterator[Any]:
        # An empty event would have no name.
        return
        yield

    return stream if method.server_streaming else whole
