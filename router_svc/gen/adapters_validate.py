# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""Limits of the request messages of octavo/inference/v1/adapters.proto, whichever way they came."""

from octavo.inference.v1 import adapters_pb2 as pb
from router_svc.http import checks
from router_svc.http.checks import join


def validate_load_lora_adapter_request(message: pb.LoadLoraAdapterRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of LoadLoraAdapterRequest is broken."""
    if not message.HasField("lora_name"):
        raise checks.missing(path, "lora_name")
    if message.HasField("lora_name") and len(message.lora_name) > 512:
        raise checks.too_long(len(message.lora_name), join(path, "lora_name"), 512)
    if not message.HasField("lora_path"):
        raise checks.missing(path, "lora_path")
    if message.HasField("lora_path") and len(message.lora_path) > 4096:
        raise checks.too_long(len(message.lora_path), join(path, "lora_path"), 4096)
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if message.load_inplace:
        raise checks.refused(path, "load_inplace", "unload the other one first")


def validate_unload_lora_adapter_request(
    message: pb.UnloadLoraAdapterRequest, path: str = ""
) -> None:
    """Raises ApiError, naming the field, if a limit of UnloadLoraAdapterRequest is broken."""
    if not message.HasField("lora_name"):
        raise checks.missing(path, "lora_name")
    if message.HasField("lora_name") and len(message.lora_name) > 512:
        raise checks.too_long(len(message.lora_name), join(path, "lora_name"), 512)
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
