#!/usr/bin/env python
"""protoc plugin: a CodeGeneratorRequest on stdin, the HTTP adapter's files on stdout.

For each file that it is asked for it emits, flat in the output directory, the decoders, validators
and encoders of the messages that its services use, and per service the handler's protocol, the HTTP
routes, the gRPC servicer and what registers the three; for all of them together openapi.json and
the documentation's api.md.
"""

import sys

from google.protobuf.compiler import plugin_pb2

from router_svc.codegen.decoders import emit_decoders
from router_svc.codegen.docs import emit_docs
from router_svc.codegen.encoders import emit_encoders
from router_svc.codegen.model import UnsupportedError, snake
from router_svc.codegen.openapi import emit_openapi
from router_svc.codegen.reader import read_files
from router_svc.codegen.services import emit_handler, emit_routes, emit_service, emit_servicer
from router_svc.codegen.validators import emit_validators

_HEADER = "# Generated from {source} by router_svc/codegen; do not edit.\n"


def generate(request: plugin_pb2.CodeGeneratorRequest) -> plugin_pb2.CodeGeneratorResponse:
    """The plugin as a function; a proto that cannot be mapped is reported as protoc expects it."""
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    wanted = set(request.file_to_generate)
    try:
        files = read_files([proto for proto in request.proto_file if proto.name in wanted])
        response.file.add(
            name="__init__.py",
            content='"""The generated HTTP and gRPC adapter; see protos/generate.sh."""\n',
        )
        for file in files:
            texts = {
                f"{file.stem}_decode.py": emit_decoders(file),
                f"{file.stem}_validate.py": emit_validators(file),
                f"{file.stem}_encode.py": emit_encoders(file),
            }
            for service in file.services:
                name = snake(service.name)
                texts[f"{name}_handler.py"] = emit_handler(file, service)
                texts[f"{name}_http.py"] = emit_routes(file, service)
                texts[f"{name}_grpc.py"] = emit_servicer(file, service)
                texts[f"{name}_service.py"] = emit_service(file, service)
            for name, text in texts.items():
                response.file.add(name=name, content=_HEADER.format(source=file.source) + text)
        response.file.add(name="openapi.json", content=emit_openapi(files))
        response.file.add(name="api.md", content=emit_docs(files))
    except UnsupportedError as error:
        response.error = str(error)
    return response


def main() -> None:
    """Speaks protoc's plugin protocol on stdin and stdout."""
    # The options are parsed as such because reader has imported their stub.
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(generate(request).SerializeToString())


if __name__ == "__main__":
    main()
