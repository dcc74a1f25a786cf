// SPDX-License-Identifier: Apache-2.0
// Reads eight bytes as the size of the data, and then any text as the header of a safetensors file. The tensors of an
// accepted header cover the data without gaps or overlaps, and each is as large as its shape says. A refused header
// gets one line.
#include "tensor_files/safetensors.h"

#include "command_line/console.h"
#include "fuzz.h"

#include <algorithm>
#include <cstring>

using namespace normjit;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    int64_t data_bytes = 0;
    if (size < sizeof data_bytes) return 0;
    std::memcpy(&data_bytes, data, sizeof data_bytes);
    data_bytes = std::max<int64_t>(data_bytes, 0);  // the size of a file minus the size of its header
    const auto header = cli::parse_safetensors_header(fuzz::as_text(data + 8, size - 8), data_bytes);
    if (!header) {
        fuzz::require(!header.status().message().empty(), "an error without a message");
        return 0;
    }
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (const cli::StoredTensor& tensor : header->tensors) {
        pieces.emplace_back(tensor.begin, tensor.end);
        fuzz::require(std::ranges::all_of(tensor.shape, [](int64_t n) { return n >= 0; }), "a negative size",
                      tensor.name);
    }
    std::ranges::sort(pieces);
    int64_t covered = 0;
    for (const auto& [begin, end] : pieces) {
        fuzz::require(begin == covered && end >= begin, "a gap or an overlap");
        covered = end;
    }
    fuzz::require(covered == data_bytes, "data that is no tensor's");
    return 0;
}
