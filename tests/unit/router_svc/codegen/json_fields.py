"""Fields of the public requests by reflection, apart from what the generator reads."""

from importlib import import_module
from importlib.resources import files

from google.protobuf.descriptor import Descriptor
from octavo.http.v1 import options_pb2

_STEMS = sorted(
    path.name.removesuffix("_pb2.py")
    for path in files("octavo.inference.v1").iterdir()
    if path.name.endswith("_pb2.py")
)

REQUESTS: dict[str, Descriptor] = {
    method.GetOptions().Extensions[options_pb2.http].post: method.input_type
    for stem in _STEMS
    for service in import_module(
        f"octavo.inference.v1.{stem}_pb2"
    ).DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.GetOptions().Extensions[options_pb2.http].post
}


def field_names(route: str) -> list[str]:
    """JSON names of the fields of a route's body."""
    fields = REQUESTS[route].fields
    return [each.GetOptions().Extensions[options_pb2.field].name or each.name for each in fields]
