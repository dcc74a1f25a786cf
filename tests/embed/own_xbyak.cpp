// SPDX-License-Identifier: Apache-2.0
// A program with its own code generator, whose Xbyak is not the one in normjit's static library. CMake defines
// XBYAK_DONT_USE_MMAP_ALLOCATOR, which changes the size of Xbyak's classes, as another version may.
#include "normjit/compile.h"
#include "normjit/space.h"

#include <array>
#include <cstdint>

#include <xbyak/xbyak.h>

namespace {

using namespace normjit;

struct Own : Xbyak::CodeGenerator {
    explicit Own(std::array<uint8_t, 1024>& memory) : CodeGenerator(memory.size(), memory.data()) {
        Xbyak::Label loop;
        L(loop);
        vaddps(zmm0 | k1, zmm1, ptr[rdi + rcx * 4]);
        sub(rcx, 16);
        jge(loop);
        align(16);
        ret();
    }
};

size_t own_bytes() {
    std::array<uint8_t, 1024> memory{};
    return Own(memory).getSize();
}

}  // namespace

int main() {
    const size_t before = own_bytes();
    const auto target = parse_target("x86-64-avx512");
    const auto spec = parse_spec("layernorm cols=1000 x=bf16");
    if (!target || !spec) return 1;
    const auto artifact = compile(*spec, ScheduleSpace(*spec, *target).start(), *target);
    return artifact && own_bytes() == before ? 0 : 1;
}
