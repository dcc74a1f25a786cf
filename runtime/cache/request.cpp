// SPDX-License-Identifier: Apache-2.0
#include "cache/request.h"

#include <bit>

namespace normjit::cache {

namespace {

/// Folds words into one; each step is a bijection of the state, so that no word is lost before the last is in.
class Mixer {
  public:
    void add(uint64_t word) {
        state_ = (state_ ^ word) * 0x9e3779b97f4a7c15;  // odd, from the golden ratio
        state_ ^= state_ >> 32;
    }
    void add(double number) { add(std::bit_cast<uint64_t>(number == 0 ? 0.0 : number)); }
    uint64_t state() const { return state_; }

  private:
    uint64_t state_ = 0;
};

void add_spec(Mixer& mixer, const Spec& spec) {
    mixer.add(static_cast<uint64_t>(spec.norm) | static_cast<uint64_t>(spec.source) << 8 |
              static_cast<uint64_t>(spec.stats) << 16 | uint64_t{spec.rows.has_value()} << 24);
    mixer.add(static_cast<uint64_t>(spec.rows.value_or(0)));
    mixer.add(static_cast<uint64_t>(spec.cols));
    mixer.add(spec.eps);
    mixer.add(spec.gamma_offset);
    uint64_t types = 0;
    for (Tensor tensor : all_tensors) {
        const auto type = spec.dtypes[tensor];
        types = types << 4 | (type ? static_cast<uint64_t>(*type) + 1 : 0);
    }
    static_assert(tensor_count <= 16);
    mixer.add(types);
}

}  // namespace

uint64_t memory_hash(const Request& request) {
    Mixer mixer;
    add_spec(mixer, request.spec);
    if (request.schedule) mixer.add(hash(*request.schedule));  // through text: asking with a schedule is no hot path
    return mixer.state();
}

}  // namespace normjit::cache
