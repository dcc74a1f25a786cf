# SPDX-License-Identifier: Apache-2.0
# needs: jax
"""Compares src/xla_ffi.h with jaxlib's own header, as a compiler sees them."""
import os
import pathlib
import subprocess

import jax.ffi

SOURCES = pathlib.Path(__file__).parents[1] / "src"
FIELDS = {  # for each of our structs: XLA's struct, and pairs of fields
    "Buffer": ("XLA_FFI_Buffer", "type dtype, data data, rank rank, dims dims"),
    "Text": ("XLA_FFI_ByteSpan", "data ptr, size len"),
    "Scalar": ("XLA_FFI_Scalar", "type dtype, value value"),
    "Attributes": ("XLA_FFI_Attrs", "count size, kinds types, names names, values attrs"),
    "ErrorCreate": ("XLA_FFI_Error_Create_Args", "message message, code errc"),
    "ErrorDestroy": ("XLA_FFI_Error_Destroy_Args", "error error"),
    "StreamGet": ("XLA_FFI_Stream_Get_Args", "context ctx, stream stream"),
    "OrdinalGet": ("XLA_FFI_DeviceOrdinal_Get_Args", "context ctx, ordinal device_ordinal"),
    "PoolSchedule": ("XLA_FFI_ThreadPool_Schedule_Args", "context ctx, task task, data data"),
    "PoolThreads": ("XLA_FFI_ThreadPool_NumThreads_Args", "context ctx, threads num_threads"),
    "Version": ("XLA_FFI_Api_Version", "major major_version, minor minor_version"),
    "CallFrame": ("XLA_FFI_CallFrame", "api api, context ctx, stage stage, arguments args, results rets, attributes attrs"),
    "Metadata": ("XLA_FFI_Metadata", "size struct_size, version api_version, traits traits, state_type state_type_id"),
    "MetadataExtension": ("XLA_FFI_Metadata_Extension", "size extension_base.struct_size, kind extension_base.type, "
                          "metadata metadata"),
    "Api": ("XLA_FFI_Api", "version api_version, error_create XLA_FFI_Error_Create, "
            "error_destroy XLA_FFI_Error_Destroy, stream_get XLA_FFI_Stream_Get, "
            "pool_schedule XLA_FFI_ThreadPool_Schedule, pool_threads XLA_FFI_ThreadPool_NumThreads, "
            "ordinal_get XLA_FFI_DeviceOrdinal_Get"),
}
NUMBERS = {
    "Element::u8": "DataType_U8", "Element::f16": "DataType_F16", "Element::f32": "DataType_F32",
    "Element::f64": "DataType_F64", "Element::bf16": "DataType_BF16", "AttributeKind::string": "AttrType_STRING",
    "AttributeKind::scalar": "AttrType_SCALAR", "ErrorCode::internal": "Error_Code_INTERNAL",
    "ErrorCode::invalid_argument": "Error_Code_INVALID_ARGUMENT", "ErrorCode::unavailable": "Error_Code_UNAVAILABLE",
    "Stage::execute": "ExecutionStage_EXECUTE", "metadata_extension": "Extension_Metadata",
    "trait_may_be_captured": "HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE", "ffi_major": "API_MAJOR",
}


def test_declarations(tmp_path):
    lines = []
    for ours, (theirs, pairs) in FIELDS.items():
        for pair in pairs.split(", "):
            a, b = pair.split()
            if a == "state_type":  # newer versions have it
                continue
            lines.append(f"static_assert(offsetof({ours}, {a}) == offsetof({theirs}, {b}));")
            lines.append(f"static_assert(sizeof({ours}::{a}) == sizeof((({theirs}*)nullptr)->{b}));")
    lines += [f"static_assert(int({ours}) == int(XLA_FFI_{theirs}));" for ours, theirs in NUMBERS.items()]
    lines.append("static_assert(ffi_minor <= XLA_FFI_API_MINOR);")
    source = ('#include <cstddef>\n#include "xla/ffi/api/c_api.h"\n#include "xla_ffi.h"\n'
              "using namespace normjit::jax;\n") + "\n".join(lines)
    done = subprocess.run([os.environ.get("CC", "c++"), "-x", "c++", "-std=c++20", "-fsyntax-only", "-", f"-I{SOURCES}",
                           f"-I{jax.ffi.include_dir()}"], input=source.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
