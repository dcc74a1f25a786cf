// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/safetensors.h"

#include "command_line/files.h"
#include "support/try.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ranges>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the format stores little-endian numbers");

constexpr int64_t length_bytes = 8;
constexpr int64_t most_header_bytes = 100'000'000;  // the limit of the format's own library

struct NamedType {
    std::string_view name;
    DType type;
};
constexpr NamedType computed_types[] = {{"F64", DType::f64},      {"F32", DType::f32},      {"F16", DType::f16},
                                        {"BF16", DType::bf16},    {"F8_E4M3", DType::e4m3}, {"F8_E5M2", DType::e5m2},
                                        {"F8_E8M0", DType::e8m0}, {"I8", DType::i8}};
static_assert(std::size(computed_types) == std::size(all_dtypes));

std::string_view stored_name(DType type) {
    for (const NamedType& known : computed_types) {
        if (known.type == type) return known.name;
    }
    return {};
}

Status read_exactly(int descriptor, int64_t offset, void* to, int64_t bytes) {
    auto* next = static_cast<char*>(to);
    while (bytes > 0) {
        ssize_t count = pread(descriptor, next, static_cast<size_t>(std::min(bytes, int64_t{1} << 30)), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return invalid_argument(fmt::format("cannot be read: {}", std::strerror(errno)));
        if (count == 0) return invalid_argument("ended while it was being read");
        next += count;
        offset += count;
        bytes -= count;
    }
    return {};
}

/// Returns the size. Fails for anything but a regular file, because the length of a pipe is unknown, and reading a
/// folder gives no clear error.
Expected<int64_t> regular_file_size(int descriptor) {
    struct stat status{};
    if (fstat(descriptor, &status) != 0) return invalid_argument(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) return invalid_argument("is a folder, not a safetensors file");
    if (!S_ISREG(status.st_mode)) return invalid_argument("is not a regular file");
    return int64_t{status.st_size};
}

/// Sets `data_start` to the end of the header. Errors do not name the file.
Expected<SafetensorsHeader> read_header(int descriptor, int64_t& data_start) {
    NORMJIT_TRY(int64_t file_bytes, regular_file_size(descriptor));
    if (file_bytes < length_bytes) {
        return invalid_argument(fmt::format("{} bytes are too few for a safetensors file", file_bytes));
    }
    uint64_t header_bytes = 0;
    NORMJIT_RETURN_IF_ERROR(read_exactly(descriptor, 0, &header_bytes, length_bytes));
    if (header_bytes > static_cast<uint64_t>(file_bytes - length_bytes)) {
        return invalid_argument(
            fmt::format("announces a header of {} bytes, but {} follow: truncated, or not a safetensors file",
                        header_bytes, file_bytes - length_bytes));
    }
    if (header_bytes > most_header_bytes) return invalid_argument("has a header of more than 100 MB");
    std::string text(header_bytes, '\0');
    NORMJIT_RETURN_IF_ERROR(read_exactly(descriptor, length_bytes, text.data(), static_cast<int64_t>(header_bytes)));
    data_start = length_bytes + static_cast<int64_t>(header_bytes);
    return parse_safetensors_header(text, file_bytes - data_start);
}

}  // namespace

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
    // O_NONBLOCK, because opening a pipe without a writer would wait forever.
    Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!descriptor.is_open())
        return invalid_argument(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
    SafetensorsFile file;
    file.path_ = path;
    auto header = read_header(descriptor.get(), file.data_start_);
    if (!header.ok()) return Status(header.status().code(), fmt::format("{}: {}", path, header.status().message()));
    file.header_ = *std::move(header);
    file.descriptor_ = std::make_shared<const Descriptor>(std::move(descriptor));
    return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
    for (const StoredTensor& tensor : header_.tensors) {
        if (tensor.name == name) return &tensor;
    }
    return nullptr;
}

Expected<DType> SafetensorsFile::type_of(const StoredTensor& tensor) const {
    for (const NamedType& known : computed_types) {
        if (known.name == tensor.dtype) return known.type;
    }
    const auto allowed = std::views::transform(computed_types, &NamedType::name);
    return error(tensor.name, fmt::format("dtype {} is not one of {}", tensor.dtype, fmt::join(allowed, ", ")));
}

Status SafetensorsFile::read(const StoredTensor& tensor, void* to) const {
    Status status = read_exactly(descriptor_->get(), data_start_ + tensor.begin, to, tensor.bytes());
    return status.ok() ? status : error(tensor.name, status.message());
}

Status SafetensorsFile::error(std::string_view tensor, std::string_view what) const {
    return invalid_argument(fmt::format("{}: tensor \"{}\": {}", path_, tensor, what));
}

Status write_safetensors(OutputFile& file, std::vector<TensorView> tensors, const Metadata& metadata) {
    // Writing the widest types first aligns every tensor to its element, because the header is padded to 8 bytes.
    std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
        return std::pair(size_of(b.type), std::string_view(a.name)) <
               std::pair(size_of(a.type), std::string_view(b.name));
    });
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::vector<size_t> sizes;
    size_t end = 0;
    for (const TensorView& tensor : tensors) {
        size_t bytes = size_of(tensor.type);
        for (int64_t size : tensor.shape) bytes *= static_cast<size_t>(size);
        size_t begin = end;
        end += bytes;
        sizes.push_back(bytes);
        header[tensor.name] = {
            {"dtype", stored_name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    }
    std::string text = line_of(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    uint64_t header_bytes = text.size();
    NORMJIT_RETURN_IF_ERROR(file.write(&header_bytes, sizeof header_bytes));
    NORMJIT_RETURN_IF_ERROR(file.write(text));
    for (size_t i = 0; i < tensors.size(); ++i) {
        NORMJIT_RETURN_IF_ERROR(file.write(tensors[i].data, sizes[i]));
    }
    return {};
}

}  // namespace normjit::cli
