# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""HTTP routes of octavo.inference.v1.Adapters."""

from starlette.routing import Route

from octavo.inference.v1 import adapters_pb2 as pb
from router_svc.gen import adapters_decode as decode
from router_svc.gen import adapters_encode as encode
from router_svc.gen import adapters_validate as validate
from router_svc.gen.adapters_handler import AdaptersHandler
from router_svc.http.endpoint import endpoint
from router_svc.http.exchange import Exchange, HttpSettings


def routes(handler: AdaptersHandler, settings: HttpSettings) -> list[Route]:
    """One route per RPC with a path, all answered by the handler."""

    async def load_lora_adapter(exchange: Exchange) -> None:
        request = decode.decode_load_lora_adapter_request(await exchange.body(), "")
        validate.validate_load_lora_adapter_request(request)
        call = handler.load_lora_adapter(request, exchange.context)
        await exchange.reply(call, encode.encode_load_lora_adapter_response)

    async def unload_lora_adapter(exchange: Exchange) -> None:
        request = decode.decode_unload_lora_adapter_request(await exchange.body(), "")
        validate.validate_unload_lora_adapter_request(request)
        call = handler.unload_lora_adapter(request, exchange.context)
        await exchange.reply(call, encode.encode_unload_lora_adapter_response)

    return [
        endpoint("POST", "/v1/load_lora_adapter", load_lora_adapter, settings),
        endpoint("POST", "/v1/unload_lora_adapter", unload_lora_adapter, settings),
    ]
