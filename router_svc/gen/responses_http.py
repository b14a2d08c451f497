# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""HTTP routes of octavo.inference.v1.Responses."""

from starlette.routing import Route

from octavo.inference.v1 import responses_pb2 as pb
from router_svc.gen import responses_decode as decode
from router_svc.gen import responses_encode as encode
from router_svc.gen import responses_validate as validate
from router_svc.gen.responses_handler import ResponsesHandler
from router_svc.http.endpoint import endpoint
from router_svc.http.exchange import Exchange, HttpSettings


def routes(handler: ResponsesHandler, settings: HttpSettings) -> list[Route]:
    """One route per RPC with a path, all answered by the handler."""

    async def create_response(exchange: Exchange) -> None:
        request = decode.decode_create_response_request(await exchange.body(), "")
        validate.validate_create_response_request(request)
        if request.stream:
            items = handler.stream_response(request, exchange.context)
            await exchange.stream(items, encode.encode_response_event, end="", event_key="type")
            return
        call = handler.create_response(request, exchange.context)
        await exchange.reply(call, encode.encode_response)

    return [
        endpoint("POST", "/v1/responses", create_response, settings),
    ]
