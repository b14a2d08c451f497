# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""HTTP routes of octavo.inference.v1.Inference."""

from starlette.routing import Route

from octavo.inference.v1 import inference_pb2 as pb
from router_svc.gen import inference_decode as decode
from router_svc.gen import inference_encode as encode
from router_svc.gen import inference_validate as validate
from router_svc.gen.inference_handler import InferenceHandler
from router_svc.http.endpoint import endpoint
from router_svc.http.exchange import Exchange, HttpSettings


def routes(handler: InferenceHandler, settings: HttpSettings) -> list[Route]:
    """One route per RPC with a path, all answered by the handler."""

    async def create_chat_completion(exchange: Exchange) -> None:
        request = decode.decode_create_chat_completion_request(await exchange.body(), "")
        validate.validate_create_chat_completion_request(request)
        if request.stream:
            items = handler.stream_chat_completion(request, exchange.context)
            await exchange.stream(
                items, encode.encode_stream_chat_completion_response, end="[DONE]"
            )
            return
        call = handler.create_chat_completion(request, exchange.context)
        await exchange.reply(call, encode.encode_create_chat_completion_response)

    async def render_chat_completion(exchange: Exchange) -> None:
        request = decode.decode_create_chat_completion_request(await exchange.body(), "")
        validate.validate_create_chat_completion_request(request)
        call = handler.render_chat_completion(request, exchange.context)
        await exchange.reply(call, encode.encode_render_chat_completion_response)

    async def create_completion(exchange: Exchange) -> None:
        request = decode.decode_create_completion_request(await exchange.body(), "")
        validate.validate_create_completion_request(request)
        if request.stream:
            items = handler.stream_completion(request, exchange.context)
            await exchange.stream(items, encode.encode_create_completion_response, end="[DONE]")
            return
        call = handler.create_completion(request, exchange.context)
        await exchange.reply(call, encode.encode_create_completion_response)

    async def list_models(exchange: Exchange) -> None:
        request = pb.ListModelsRequest()
        validate.validate_list_models_request(request)
        call = handler.list_models(request, exchange.context)
        await exchange.reply(call, encode.encode_list_models_response)

    async def get_model(exchange: Exchange) -> None:
        request = pb.GetModelRequest(model=exchange.path_value("model"))
        validate.validate_get_model_request(request)
        call = handler.get_model(request, exchange.context)
        await exchange.reply(call, encode.encode_model)

    async def explain_route(exchange: Exchange) -> None:
        request = decode.decode_explain_route_request(await exchange.body(), "")
        validate.validate_explain_route_request(request)
        call = handler.explain_route(request, exchange.context)
        await exchange.reply(call, encode.encode_explain_route_response)

    async def tokenize(exchange: Exchange) -> None:
        request = decode.decode_tokenize_request(await exchange.body(), "")
        validate.validate_tokenize_request(request)
        call = handler.tokenize(request, exchange.context)
        await exchange.reply(call, encode.encode_tokenize_response)

    async def detokenize(exchange: Exchange) -> None:
        request = decode.decode_detokenize_request(await exchange.body(), "")
        validate.validate_detokenize_request(request)
        call = handler.detokenize(request, exchange.context)
        await exchange.reply(call, encode.encode_detokenize_response)

    return [
        endpoint("POST", "/v1/chat/completions", create_chat_completion, settings),
        endpoint("POST", "/v1/chat/completions/render", render_chat_completion, settings),
        endpoint("POST", "/v1/completions", create_completion, settings),
        endpoint("GET", "/v1/models", list_models, settings),
        endpoint("GET", "/v1/models/{model:path}", get_model, settings),
        endpoint("POST", "/explain_route", explain_route, settings),
        endpoint("POST", "/tokenize", tokenize, settings),
        endpoint("POST", "/detokenize", detokenize, settings),
    ]
