// SPDX-License-Identifier: Apache-2.0
// Files of named tensors: an 8-byte little-endian header length, a JSON header, then the data of all tensors without
// gaps. Reading is strict: a file that breaks a rule of the format is refused with one line that names the file, the
// tensor and the rule. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include "command_line/files.h"

#include "normjit/dtype.h"
#include "normjit/status.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cli {

using Metadata = std::map<std::string, std::string>;

/// Where a tensor is in a file.
struct StoredTensor {
    std::string name;
    std::string dtype;  ///< as the header spells it: "F32", "I64", ...
    std::vector<int64_t> shape;
    int64_t begin = 0;  ///< bytes from the start of the data
    int64_t end = 0;

    int64_t bytes() const { return end - begin; }
    bool operator==(const StoredTensor&) const = default;
};

/// The content of the header, after a check that shapes, types and offsets agree with each other and with the size of
/// the data.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;  ///< in the order of their names
    Metadata metadata;
};

/// `data_bytes` is the size of the file after the header. Errors do not name the file.
Expected<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes);

/// An open file. The data stays on the disk until it is read.
class SafetensorsFile {
  public:
    static Expected<SafetensorsFile> open(const std::string& path);

    const std::string& path() const { return path_; }
    const SafetensorsHeader& header() const { return header_; }
    const StoredTensor* find(std::string_view name) const;

    /// Returns the element type of a tensor. Fails if normjit does not compute with that type.
    Expected<DType> type_of(const StoredTensor& tensor) const;

    /// Copies tensor.bytes() bytes to `to`.
    Status read(const StoredTensor& tensor, void* to) const;

    /// Returns an error about one tensor of this file.
    Status error(std::string_view tensor, std::string_view what) const;

  private:
    std::string path_;
    SafetensorsHeader header_;
    std::shared_ptr<const Descriptor> descriptor_;
    int64_t data_start_ = 0;
};

/// A tensor to be written, whose memory belongs to the caller.
struct TensorView {
    std::string name;
    DType type = DType::f32;
    std::vector<int64_t> shape;
    const void* data = nullptr;
};

Status write_safetensors(OutputFile& file, std::vector<TensorView> tensors, const Metadata& metadata);

}  // namespace normjit::cli
