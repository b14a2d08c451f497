"""Emits the parts of a service: handler's protocol, HTTP routes, gRPC servicer, registration."""

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
    for line in file.imports(_messages(service)):
        out.line(line)
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
            result = file.pb(method.response)
            if method.is_streaming:
                result = f"AsyncIterator[{result}]"
            with out.block(
                f"{keyword} {method.function}(self, request: {file.pb(method.request)}, "
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
    for line in file.imports(_messages(service), "decode", "encode", "validate"):
        out.line(line)
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
                for each in (method.path, *method.also):
                    path = each.replace(f"{{{method.path_field}}}", f"{{{method.path_field}:path}}")
                    route = f"{literal(method.verb)}, {literal(path)}"
                    out.line(f"endpoint({route}, {method.function}, settings),")
        out.line("]")
    return out.text()


def _emit_endpoint(out: Writer, file: File, service: Service, method: Method) -> None:
    with out.block(f"async def {method.function}(exchange: Exchange) -> None:"):
        if method.verb == "POST":
            decode = _call(file, "decode", method.request)
            out.line(f'request = {decode}(await exchange.body(), "")')
        elif method.path_field:
            bound = f'exchange.path_value("{method.path_field}")'
            out.line(f"request = {file.pb(method.request)}({method.path_field}={bound})")
        else:
            out.line(f"request = {file.pb(method.request)}()")
        out.line(f"{_call(file, 'validate', method.request)}(request)")
        if method.streaming_rpc:
            twin = service.method(method.streaming_rpc)
            if not twin.is_streaming or twin.request != method.request:
                raise UnsupportedError(f"{method.name}: {twin.name} is not its streaming twin")
            if not any(each.name == "stream" for each in file.messages[method.request].fields):
                raise UnsupportedError(f"{method.request} has no field stream to ask for it")
            with out.block("if request.stream:"):
                key = f", event_key={literal(method.event_key)}" if method.event_key else ""
                out.line(f"items = handler.{twin.function}(request, exchange.context)")
                out.line(
                    f"await exchange.stream(items, {_call(file, 'encode', twin.response)}, "
                    f"end={literal(method.stream_end)}{key})"
                )
                out.line("return")
        out.line(f"call = handler.{method.function}(request, exchange.context)")
        out.line(f"await exchange.reply(call, {_call(file, 'encode', method.response)})")


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
    for line in file.imports(_messages(service), "validate"):
        out.line(line)
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
            check = _call(file, "validate", method.request)
            call = f"self._handler.{method.function}"
            result = file.pb(method.response)
            if method.is_streaming:
                result = f"AsyncIterator[{result}]"
            with out.block(
                f"async def {method.name}(self, request: {file.pb(method.request)}, "
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


def emit_service(file: File, service: Service) -> str:
    """The function that makes a handler a service, which the server's list registers."""
    out = Writer()
    module = snake(service.name)
    handler = f"{service.name}Handler"
    servicer = f"{service.name}GrpcServicer"
    out.docstring(f"{file.package}.{service.name} as the server registers it.")
    out.line()
    out.line("from functools import partial")
    out.line()
    out.line(f"from {file.python_package} import {file.stem}_pb2_grpc as pb_grpc")
    out.line(f"from router_svc.gen.{module}_grpc import {servicer}")
    out.line(f"from router_svc.gen.{module}_handler import {handler}")
    out.line(f"from router_svc.gen.{module}_http import routes")
    out.line("from router_svc.http.service import Service")
    out.line()
    out.line()
    with out.block(f"def {module}_service(handler: {handler}) -> Service:"):
        out.docstring("HTTP routes and gRPC servicer over one handler.")
        with out.block("return Service("):
            out.line(f"{literal(f'{file.package}.{service.name}')},")
            out.line("partial(routes, handler),")
            out.line(f"partial(pb_grpc.add_{service.name}Servicer_to_server, {servicer}(handler)),")
        out.line(")")
    return out.text()


def _messages(service: Service) -> list[str]:
    methods = service.methods
    return [name for method in methods for name in (method.request, method.response)]


def _call(file: File, verb: str, message: str) -> str:
    """How a service's module calls the decoder, encoder or validator of a message."""
    function = file.call(verb, message)
    return function if "." in function else f"{verb}.{function}"
