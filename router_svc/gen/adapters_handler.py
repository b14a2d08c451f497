# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""What an implementation of octavo.inference.v1.Adapters offers."""

from collections.abc import AsyncIterator
from typing import Protocol

from octavo.inference.v1 import adapters_pb2 as pb
from router_svc.call_context import CallContext


class AdaptersHandler(Protocol):
    """Loads adapters into the engines of a model, and out of them again.

    Requests arrive validated. Failures are raised as ApiError; cancelling the call
    or closing the iterator means that the client is gone.
    """

    async def load_lora_adapter(
        self, request: pb.LoadLoraAdapterRequest, context: CallContext
    ) -> pb.LoadLoraAdapterResponse:
        """Loads an adapter into every engine of a model that is ready.

        Where one of them fails, those that had not got it before let it go again, and the error names
        engines and reasons.
        """
        ...

    async def unload_lora_adapter(
        self, request: pb.UnloadLoraAdapterRequest, context: CallContext
    ) -> pb.UnloadLoraAdapterResponse:
        """Has every engine let go of an adapter, once the answers that use it have ended.

        Where one of them fails, the error names it, and the others have let go all the same. NOT_FOUND
        where none has it.
        """
        ...
