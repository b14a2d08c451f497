# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""Answer messages of octavo/inference/v1/adapters.proto to JSON values."""

from collections.abc import Mapping
from typing import Any, Final

from octavo.inference.v1 import adapters_pb2 as pb
from router_svc.http import encoding as write


def encode_load_lora_adapter_response(message: pb.LoadLoraAdapterResponse) -> dict[str, Any]:
    """An adapter that was loaded."""
    return {
        "object": "lora_adapter",
        "lora_name": message.lora_name,
        "model": message.model,
        "version": message.version,
        "rank": message.rank,
        "engines": list(message.engines),
        "not_reached": list(message.not_reached),
    }


def encode_unload_lora_adapter_response(message: pb.UnloadLoraAdapterResponse) -> dict[str, Any]:
    """An adapter that was let go."""
    return {
        "object": "lora_adapter",
        "lora_name": message.lora_name,
        "model": message.model,
        "engines": list(message.engines),
        "not_reached": list(message.not_reached),
    }
