# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""JSON bodies to the request messages of octavo/inference/v1/adapters.proto."""

from collections.abc import Mapping
from typing import Final

from octavo.inference.v1 import adapters_pb2 as pb
from router_svc.http import checks
from router_svc.http import decoding as read
from router_svc.http.checks import join

_LOAD_LORA_ADAPTER_REQUEST_FIELDS: Final = frozenset(
    {"lora_name", "lora_path", "model", "load_inplace"}
)


def decode_load_lora_adapter_request(value: object, path: str) -> pb.LoadLoraAdapterRequest:
    """An adapter to load."""
    fields = read.fields(value, path, _LOAD_LORA_ADAPTER_REQUEST_FIELDS, ("lora_name", "lora_path"))
    message = pb.LoadLoraAdapterRequest()
    if (item := fields.get("lora_name")) is not None:
        message.lora_name = read.string(item, path, "lora_name")
    if (item := fields.get("lora_path")) is not None:
        message.lora_path = read.string(item, path, "lora_path")
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("load_inplace")) is not None and item is not False:
        raise checks.refused(path, "load_inplace", "unload the other one first")
    return message


_UNLOAD_LORA_ADAPTER_REQUEST_FIELDS: Final = frozenset({"lora_name", "model", "lora_int_id"})


def decode_unload_lora_adapter_request(value: object, path: str) -> pb.UnloadLoraAdapterRequest:
    """An adapter to let go."""
    fields = read.fields(value, path, _UNLOAD_LORA_ADAPTER_REQUEST_FIELDS, ("lora_name",))
    message = pb.UnloadLoraAdapterRequest()
    if (item := fields.get("lora_name")) is not None:
        message.lora_name = read.string(item, path, "lora_name")
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("lora_int_id")) is not None:
        message.lora_int_id = read.integer(item, path, "lora_int_id", -2147483648, 2147483647)
    return message
