"""Emits the parts of a service: its handler's protocol, HTTP routes and gRPC servicer."""

from router_svc.codegen.model import File, Method, Service, UnsupportedError, snake
from router_svc.codegen.writer import Writer, first_line, literal


def emit_handler(file: File, service: Service) -> str:
    """The protocol that one implementation serves to both HTTP and gRPC callers."""
    out = Writer()
    out.docstring(f"What an implementation of {file.package}.{service.name} offers.")
    out.line()
    out.line("from collections.abc import AsyncIterator")
    out.line("from typing import Protocol")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    out.line("from router_svc.call_context import CallContext")
    out.line()
    with out.block(f"class {service.name}Handler(Protocol):"):
        out.docstring(
            first_line(service.comment, service.name)
            + "\n\nRequests arrive validated. Failures are raised as ApiError; cancelling the call"
            "\nor closing the iterator means that the client is gone."
        )
        for method in service.methods:
            out.line()
            keyword = "def" if method.is_streaming else "async def"
            result = f"pb.{method.response}"
            if method.is_streaming:
                result = f"AsyncIterator[{result}]"
            with out.block(
                f"{keyword} {method.function}(self, request: pb.{method.request}, "
                f"context: CallContext) -> {result}:"
            ):
                out.docstring(method.comment or f"{method.name}.")
                out.line("...")
    return out.text()


def emit_routes(file: File, service: Service) -> str:
    """The HTTP routes: decode, validate, call the handler, encode."""
    out = Writer()
    handler = f"{service.name}Handler"
    module = f"{snake(service.name)}"
    out.docstring(f"HTTP routes of {file.package}.{service.name}.")
    out.line()
    out.line("from starlette.routing import Route")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    out.line(f"from router_svc.gen import {file.stem}_decode as decode")
    out.line(f"from router_svc.gen import {file.stem}_encode as encode")
    out.line(f"from router_svc.gen import {file.stem}_validate as validate")
    out.line(f"from router_svc.gen.{module}_handler import {handler}")
    out.line("from router_svc.http.endpoint import endpoint")
    out.line("from router_svc.http.exchange import Exchange, HttpSettings")
    out.line()
    served = [method for method in service.methods if method.path]
    with out.block(f"def routes(handler: {handler}, settings: HttpSettings) -> list[Route]:"):
        out.docstring("One route per RPC with a path, all answered by the handler.")
        for method in served:
            out.line()
            _emit_endpoint(out, file, service, method)
        out.line()
        with out.block("return ["):
            for method in served:
                path = method.path.replace(
                    f"{{{method.path_field}}}", f"{{{method.path_field}:path}}"
                )
                route = f"{literal(method.verb)}, {literal(path)}"
                out.line(f"endpoint({route}, {method.function}, settings),")
        out.line("]")
    return out.text()


def _emit_endpoint(out: Writer, file: File, service: Service, method: Method) -> None:
    request = snake(method.request)
    with out.block(f"async def {method.function}(exchange: Exchange) -> None:"):
        if method.verb == "POST":
            out.line(f'request = decode.decode_{request}(await exchange.body(), "")')
        elif method.path_field:
            bound = f'exchange.path_value("{method.path_field}")'
            out.line(f"request = pb.{method.request}({method.path_field}={bound})")
        else:
            out.line(f"request = pb.{method.request}()")
        out.line(f"validate.validate_{request}(request)")
        if method.streaming_rpc:
            twin = service.method(method.streaming_rpc)
            if not twin.is_streaming or twin.request != method.request:
                raise UnsupportedError(f"{method.name}: {twin.name} is not its streaming twin")
            if not any(each.name == "stream" for each in file.messages[method.request].fields):
                raise UnsupportedError(f"{method.request} has no field stream to ask for it")
            with out.block("if request.stream:"):
                out.line(f"items = handler.{twin.function}(request, exchange.context)")
                out.line(
                    f"await exchange.stream(items, encode.encode_{snake(twin.response)}, "
                    f"end={literal(method.stream_end)})"
                )
                out.line("return")
        out.line(f"call = handler.{method.function}(request, exchange.context)")
        out.line(f"await exchange.reply(call, encode.encode_{snake(method.response)})")


def emit_servicer(file: File, service: Service) -> str:
    """The gRPC servicer that passes the same limits and calls the same handler."""
    out = Writer()
    handler = f"{service.name}Handler"
    module = snake(service.name)
    servicer = f"{service.name}Servicer"
    out.docstring(f"gRPC servicer of {file.package}.{service.name}.")
    out.line()
    out.line("from collections.abc import AsyncIterator")
    out.line("from typing import Any")
    out.line()
    out.line("from grpc import aio")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2 as pb")
    out.line(f"from {file.python_package} import {file.stem}_pb2_grpc as pb_grpc")
    out.line(f"from router_svc.gen import {file.stem}_validate as validate")
    out.line(f"from router_svc.gen.{module}_handler import {handler}")
    out.line("from router_svc.http import rpc")
    out.line()
    with out.block(f"class {service.name}GrpcServicer(pb_grpc.{servicer}):"):
        out.docstring(f"Answers gRPC calls with {handler}.")
        out.line()
        with out.block(f"def __init__(self, handler: {handler}) -> None:"):
            out.line("self._handler = handler")
        for method in service.methods:
            out.line()
            check = f"validate.validate_{snake(method.request)}"
            call = f"self._handler.{method.function}"
            result = f"pb.{method.response}"
            if method.is_streaming:
                result = f"AsyncIterator[{result}]"
            with out.block(
                f"async def {method.name}(self, request: pb.{method.request}, "
                f"context: aio.ServicerContext[Any, Any]) -> {result}:"
            ):
                out.docstring(method.comment or f"{method.name}.")
                if method.is_streaming:
                    with out.block(
                        f"async for item in rpc.stream(request, context, {check}, {call}):"
                    ):
                        out.line("yield item")
                else:
                    out.line(f"return await rpc.reply(request, context, {check}, {call})")
    return out.text()
