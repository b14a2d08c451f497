# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""HTTP routes of octavo.inference.v1.Embeddings."""

from starlette.routing import Route

from octavo.inference.v1 import embeddings_pb2 as pb
from router_svc.gen import embeddings_decode as decode
from router_svc.gen import embeddings_encode as encode
from router_svc.gen import embeddings_validate as validate
from router_svc.gen.embeddings_handler import EmbeddingsHandler
from router_svc.http.endpoint import endpoint
from router_svc.http.exchange import Exchange, HttpSettings


def routes(handler: EmbeddingsHandler, settings: HttpSettings) -> list[Route]:
    """One route per RPC with a path, all answered by the handler."""

    async def create_embeddings(exchange: Exchange) -> None:
        request = decode.decode_create_embeddings_request(await exchange.body(), "")
        validate.validate_create_embeddings_request(request)
        call = handler.create_embeddings(request, exchange.context)
        await exchange.reply(call, encode.encode_create_embeddings_response)

    async def rerank(exchange: Exchange) -> None:
        request = decode.decode_rerank_request(await exchange.body(), "")
        validate.validate_rerank_request(request)
        call = handler.rerank(request, exchange.context)
        await exchange.reply(call, encode.encode_rerank_response)

    async def score(exchange: Exchange) -> None:
        request = decode.decode_score_request(await exchange.body(), "")
        validate.validate_score_request(request)
        call = handler.score(request, exchange.context)
        await exchange.reply(call, encode.encode_score_response)

    return [
        endpoint("POST", "/v1/embeddings", create_embeddings, settings),
        endpoint("POST", "/rerank", rerank, settings),
        endpoint("POST", "/v1/rerank", rerank, settings),
        endpoint("POST", "/v2/rerank", rerank, settings),
        endpoint("POST", "/v1/score", score, settings),
        endpoint("POST", "/score", score, settings),
    ]
