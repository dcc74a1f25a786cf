// SPDX-License-Identifier: Apache-2.0
#include "normjit/target.h"

#include "support/text.h"
#include "support/try.h"

#include <climits>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view x86_head = "x86-64-avx512";
constexpr std::string_view x86_keys[] = {"bf16", "fp16", "cores", "l1", "l2", "l3"};
constexpr std::string_view cuda_prefix = "sm_";
constexpr std::string_view cuda_keys[] = {"sms", "shared", "l2"};
constexpr std::string_view heads[] = {x86_head, "sm_90"};

/// The best-known device of each compute capability, from the data sheets and the CUDA programming guide.
struct CommonDevice {
    int sm;
    int sm_count;
    int64_t shared_bytes;
    int64_t l2_bytes;
};
constexpr CommonDevice common_devices[] = {
    {70, 80, 98304, 6 << 20},       // V100
    {75, 40, 65536, 4 << 20},       // T4
    {80, 108, 166912, 40 << 20},    // A100
    {86, 84, 101376, 6 << 20},      // A40
    {89, 142, 101376, 96 << 20},    // L40S
    {90, 132, 232448, 50 << 20},    // H100 SXM
    {100, 148, 232448, 126 << 20},  // B200
    {120, 170, 101376, 96 << 20},   // RTX 5090
};

/// The last device that is not newer: what a newer one has is seldom less.
CommonDevice common_device(int sm) {
    CommonDevice best = common_devices[0];
    for (const CommonDevice& device : common_devices) {
        if (device.sm <= sm) best = device;
    }
    return best;
}

Expected<Target> parse_x86(std::string_view text) {
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, x86_keys));
    Target target;
    NORMJIT_RETURN_IF_ERROR(fields.read("bf16", target.avx512_bf16));
    NORMJIT_RETURN_IF_ERROR(fields.read("fp16", target.avx512_fp16));
    NORMJIT_RETURN_IF_ERROR(fields.read("cores", target.cores, 1, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("l1", target.l1_bytes, 0, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", target.l2_bytes, 0, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("l3", target.l3_bytes, 0, INT64_MAX));
    return target;
}

Expected<Target> parse_cuda(std::string_view text, std::string_view head) {
    const auto sm = text::parse_int(head.substr(cuda_prefix.size()), common_devices[0].sm, 999);
    if (!sm) {
        return invalid_argument(fmt::format("target: {}: the number {}", text::shown(head), sm.status().message()));
    }
    NORMJIT_TRY(const auto fields, text::Fields::parse("target", text, cuda_keys));
    const CommonDevice device = common_device(static_cast<int>(*sm));
    Target target;
    target.isa = Isa::cuda;
    target.sm = static_cast<int>(*sm);
    target.sm_count = device.sm_count;
    target.shared_bytes = device.shared_bytes;
    target.l2_bytes = device.l2_bytes;
    NORMJIT_RETURN_IF_ERROR(fields.read("sms", target.sm_count, 1, INT_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("shared", target.shared_bytes, 0, INT64_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("l2", target.l2_bytes, 0, INT64_MAX));
    return target;
}

}  // namespace

Expected<Target> parse_target(std::string_view text) {
    const std::string_view head = text::first_word(text);
    if (head == x86_head) return parse_x86(text);
    if (head.starts_with(cuda_prefix)) return parse_cuda(text, head);
    if (head.empty()) return invalid_argument(fmt::format("target: the text is empty; allowed: {}", text::join(heads)));
    return invalid_argument(fmt::format("target: kind '{}': allowed: {}, or another sm_ number{}", text::shown(head),
                                        text::join(heads), text::did_you_mean(head, heads)));
}

std::string to_text(const Target& target) {
    if (target.isa == Isa::cuda) {
        return fmt::format("{}{} sms={} shared={} l2={}", cuda_prefix, target.sm, target.sm_count, target.shared_bytes,
                           target.l2_bytes);
    }
    return fmt::format("{} bf16={:d} fp16={:d} cores={} l1={} l2={} l3={}", x86_head, target.avx512_bf16,
                       target.avx512_fp16, target.cores, target.l1_bytes, target.l2_bytes, target.l3_bytes);
}

uint64_t hash(const Target& target) { return text::hash(to_text(target)); }

}  // namespace normjit
