"""Small protos through protoc and the plugin, as a test writes them."""

import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2
from grpc_tools import protoc
from octavo.http.v1 import options_pb2

from router_svc.codegen.plugin import generate

PROTO_ROOT = Path(options_pb2.__file__).parents[3]

HEAD = """
syntax = "proto3";
package %s.v1;
import "octavo/http/v1/options.proto";
"""

SERVICE = """
service Things {
  // Makes a thing.
  rpc MakeThing(MakeThingRequest) returns (Thing) {
    option (octavo.http.v1.http) = {post: "/things"};
  }
}
"""


def compile_files(
    directory: Path, package: str, texts: dict[str, str]
) -> plugin_pb2.CodeGeneratorRequest:
    """What protoc would hand to the plugin for a package of these files, by stem.

    Their stubs are written below the directory too.
    """
    folder = directory / package / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.proto" for stem in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(HEAD % package + text)
    descriptors = directory / "descriptors"
    status = protoc.main(
        [
            "protoc",
            f"-I{directory}",
            f"-I{PROTO_ROOT}",
            f"-I{Path(sys.modules['grpc_tools'].__file__).parent / '_proto'}",
            f"--python_out={directory}",
            f"--grpc_python_out={directory}",
            f"--descriptor_set_out={descriptors}",
            "--include_source_info",
            "--include_imports",
            *map(str, paths),
        ]
    )
    assert status == 0
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file
    wanted = [f"{package}/v1/{stem}.proto" for stem in texts]
    return plugin_pb2.CodeGeneratorRequest(file_to_generate=wanted, proto_file=files)


def compile_request(directory: Path, package: str, text: str) -> plugin_pb2.CodeGeneratorRequest:
    """The same for one file, things.proto, with a service that makes things."""
    return compile_files(directory, package, {"things": SERVICE + text})


def contents(request: plugin_pb2.CodeGeneratorRequest) -> dict[str, str]:
    """The generated files by name."""
    response = generate(request)
    assert not response.error
    return {file.name: file.content for file in response.file}
