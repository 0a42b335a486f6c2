"""The committed stubs are what `protos/generate` makes of the .proto files."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[3]
STUBS = "kubeletx/cri/stubs"


def test_every_proto_has_a_stub_of_the_same_contents(tmp_path: Path) -> None:
    protos = sorted((ROOT / "protos").glob("*.proto"))
    out = tmp_path / "set.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{STUBS}={ROOT / 'protos'}"]
    subprocess.run([*command, f"--descriptor_set_out={out}", *map(str, protos)], cwd=ROOT, check=True)
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    assert len(compiled.file) == len(protos)
    for file in compiled.file:
        file.ClearField("source_code_info")
        stub = import_module(file.name.removesuffix(".proto").replace("/", ".") + "_pb2")
        committed = descriptor_pb2.FileDescriptorProto.FromString(stub.DESCRIPTOR.serialized_pb)
        for either in (file, committed):
            for message in _messages(either):
                for field in message.field:
                    field.ClearField("json_name")
        assert committed == file, file.name


def _messages(
    of: descriptor_pb2.FileDescriptorProto | descriptor_pb2.DescriptorProto,
) -> list[descriptor_pb2.DescriptorProto]:
    direct = of.message_type if isinstance(of, descriptor_pb2.FileDescriptorProto) else of.nested_type
    return [inner for message in direct for inner in (message, *_messages(message))]
