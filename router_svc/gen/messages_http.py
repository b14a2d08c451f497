# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""HTTP routes of octavo.inference.v1.Messages."""

from starlette.routing import Route

from octavo.inference.v1 import messages_pb2 as pb
from router_svc.gen import messages_decode as decode
from router_svc.gen import messages_encode as encode
from router_svc.gen import messages_validate as validate
from router_svc.gen.messages_handler import MessagesHandler
from router_svc.http.endpoint import endpoint
from router_svc.http.exchange import Exchange, HttpSettings


def routes(handler: MessagesHandler, settings: HttpSettings) -> list[Route]:
    """One route per RPC with a path, all answered by the handler."""

    async def create_message(exchange: Exchange) -> None:
        request = decode.decode_create_message_request(await exchange.body(), "")
        validate.validate_create_message_request(request)
        if request.stream:
            items = handler.stream_message(request, exchange.context)
            await exchange.stream(
                items, encode.encode_stream_message_response, end="", event_key="type"
            )
            return
        call = handler.create_message(request, exchange.context)
        await exchange.reply(call, encode.encode_create_message_response)

    async def count_message_tokens(exchange: Exchange) -> None:
        request = decode.decode_count_message_tokens_request(await exchange.body(), "")
        validate.validate_count_message_tokens_request(request)
        call = handler.count_message_tokens(request, exchange.context)
        await exchange.reply(call, encode.encode_count_message_tokens_response)

    return [
        endpoint("POST", "/v1/messages", create_message, settings),
        endpoint("POST", "/v1/messages/count_tokens", count_message_tokens, settings),
    ]
