# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""gRPC servicer of octavo.inference.v1.Adapters."""

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from octavo.inference.v1 import adapters_pb2 as pb
from octavo.inference.v1 import adapters_pb2_grpc as pb_grpc
from router_svc.gen import adapters_validate as validate
from router_svc.gen.adapters_handler import AdaptersHandler
from router_svc.http import rpc


class AdaptersGrpcServicer(pb_grpc.AdaptersServicer):
    """Answers gRPC calls with AdaptersHandler."""

    def __init__(self, handler: AdaptersHandler) -> None:
        self._handler = handler

    async def LoadLoraAdapter(
        self, request: pb.LoadLoraAdapterRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.LoadLoraAdapterResponse:
        """Loads an adapter into every engine of a model that is ready.

        Where one of them fails, those that had not got it before let it go again, and the error names
        engines and reasons.
        """
        return await rpc.reply(
            request,
            context,
            validate.validate_load_lora_adapter_request,
            self._handler.load_lora_adapter,
        )

    async def UnloadLoraAdapter(
        self, request: pb.UnloadLoraAdapterRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.UnloadLoraAdapterResponse:
        """Has every engine let go of an adapter, once the answers that use it have ended.

        Where one of them fails, the error names it, and the others have let go all the same. NOT_FOUND
        where none has it.
        """
        return await rpc.reply(
            request,
            context,
            validate.validate_unload_lora_adapter_request,
            self._handler.unload_lora_adapter,
        )
