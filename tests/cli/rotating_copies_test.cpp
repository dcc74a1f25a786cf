// SPDX-License-Identifier: Apache-2.0
#include "problem/rotating_copies.h"

#include "device/cpu/system.h"
#include "temporary_folder.h"

#include "normjit/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli;

namespace {

constexpr int64_t megabyte = 1 << 20;

/// A problem with data, and a kernel for it.
struct Fixture {
    explicit Fixture(const char* text) {
        const auto engine = Engine::create({.threads = 2});
        if (!engine.ok()) return;
        kernel = *engine->prepare(*parse_spec(text));
        rows = *kernel->artifact().spec.rows;
    }
    Problem problem() {
        auto made = allocate_problem(*kernel, rows, team);
        REQUIRE(made.ok());
        fill_inputs(*made, 3, team);
        return *std::move(made);
    }

    std::optional<Kernel> kernel;  ///< none if there is no back end
    int64_t rows = 0;
    bench::Team team{2};
};

/// Writes a cache description as the system does.
void write_cache(const std::filesystem::path& path, const char* level, const char* size, const std::string& shared) {
    std::filesystem::create_directories(path);
    std::ofstream(path / "level") << level << "\n";
    std::ofstream(path / "size") << size << "\n";
    std::ofstream(path / "shared_cpu_list") << shared << "\n";
}

}  // namespace

TEST_CASE("a turn visits every copy once, never a neighbour, and finds the problem's inputs there") {
    Fixture f("layernorm rows=40 cols=300 x=bf16");
    if (!f.kernel) return;
    const Problem original = f.problem();
    for (const int64_t turn : {megabyte / 4, 3 * megabyte}) {
        ColdMemory memory(turn, 64 * megabyte);
        auto copies = open_copies(f.problem(), Caches::cold, memory, f.team);
        REQUIRE(copies.ok());
        const int64_t bytes = 3 * 40 * 300 * 2 + 2 * 192;  // whole cache lines
        CHECK(copies->copies() == (turn + bytes - 1) / bytes);
        CHECK(copies->is_cold());
        std::map<const char*, const char*> parts;  // where the copies are
        const char* last = nullptr;
        for (int64_t i = 0; i < copies->copies(); ++i) {
            const Arguments arguments = copies->next();
            for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx, Tensor::mean, Tensor::rstd}) {
                const auto* data = static_cast<const char*>(arguments[tensor].data);
                CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
                CHECK(parts.emplace(data, data + copies->bytes_of(tensor)).second);
                CHECK(data == copies->element(tensor, 0));
                if (!may_be_read(tensor)) continue;
                const auto size = static_cast<size_t>(copies->bytes_of(tensor));
                CHECK(std::memcmp(data, original.tensors[tensor].data(), size) == 0);
            }
            const auto* x = static_cast<const char*>(arguments[Tensor::x].data);
            if (copies->copies() > 10) CHECK(std::abs(x - last) > 2 * bytes);
            last = x;
        }
        const char* end = nullptr;
        for (const auto& [from, to] : parts) {
            CHECK(from >= end);
            end = to;
        }
        CHECK(parts.contains(static_cast<const char*>(copies->next()[Tensor::x].data)));
        copies->hold(true);
        const void* held = copies->element(Tensor::x, 0);
        CHECK(copies->next()[Tensor::x].data == held);
        copies->hold(false);
        CHECK(copies->next()[Tensor::x].data != held);
        const bench::Traffic& traffic = copies->next_traffic();
        CHECK(traffic.reads[0].data == copies->element(Tensor::x, 0));
        CHECK(traffic.reads[1].data == copies->element(Tensor::dy, 0));
        CHECK(traffic.writes[0].data == copies->element(Tensor::dx, 0));
    }
}

TEST_CASE("a problem larger than the caches stays in place, as does one that must be warm") {
    Fixture f("rmsnorm rows=40 cols=300");
    if (!f.kernel) return;
    ColdMemory small(100 << 10, 64 * megabyte), large(8 * megabyte, 64 * megabyte);
    for (ColdMemory* memory : {&small, &large}) {
        Problem problem = f.problem();
        const void* x = problem.tensors[Tensor::x].data();
        auto copies = open_copies(std::move(problem), memory == &small ? Caches::cold : Caches::warm, *memory, f.team);
        REQUIRE(copies.ok());
        CHECK(copies->copies() == 1);
        CHECK(copies->is_cold() == (memory == &small));
        CHECK(copies->next()[Tensor::x].data == x);
    }
}

TEST_CASE("with little memory there are fewer copies, and they are not called cold") {
    Fixture f("rmsnorm rows=40 cols=300");
    if (!f.kernel) return;
    for (const int64_t most : {100 << 10, 1000 << 10}) {
        ColdMemory memory(64 * megabyte, most);
        CHECK(!memory.is_enough());
        auto copies = open_copies(f.problem(), Caches::cold, memory, f.team);
        REQUIRE(copies.ok());
        CHECK(copies->copies() == (most < (144 << 10) ? 1 : 6));
        CHECK(!copies->is_cold());
        CHECK(f.kernel->launch(copies->next()).ok());
    }
}

TEST_CASE("copies take the memory of a turn, and little more") {
    for (const char* text :
         {"rmsnorm rows=1 cols=1 x=bf16", "layernorm rows=3 cols=100", "rmsnorm rows=256 cols=1024"}) {
        CAPTURE(text);
        Fixture f(text);
        if (!f.kernel) return;
        ColdMemory memory(8 * megabyte, 64 * megabyte);
        auto copies = open_copies(f.problem(), Caches::cold, memory, f.team);
        REQUIRE(copies.ok());
        CHECK(copies->is_cold());
        const auto* least = static_cast<const char*>(copies->next()[Tensor::x].data);
        const char* most = least;
        for (int64_t i = 0; i < copies->copies(); ++i) {
            const auto* x = static_cast<const char*>(copies->next()[Tensor::x].data);
            least = std::min(least, x), most = std::max(most, x);
        }
        CHECK(most - least < 9 * megabyte);
        CHECK(f.kernel->launch(copies->next()).ok());
    }
}

TEST_CASE("memory for copies is allocated once, and starts at another page each time") {
    bench::Team team(2);
    ColdMemory memory(megabyte, 64 * megabyte);
    const char* first = *memory.take(megabyte, team);
    const char* second = *memory.take(megabyte / 2, team);
    CHECK(first != second);
    CHECK(std::abs(first - second) < 33 * megabyte);
    for (const char* begin : {first, second}) CHECK(reinterpret_cast<uintptr_t>(begin) % 4096 == 0);
    char* large = *memory.take(3 * megabyte, team);
    std::memset(large, 1, 3 * megabyte);
}

TEST_CASE("shared caches are counted once; the target gives what the system does not show") {
    const test::TemporaryFolder folder;
    const Target target = *parse_target("x86-64-avx512 cores=3 l2=1000 l3=5000");
    CHECK(cache_bytes(target, folder / "nothing") == 3 * 1000 + 5000);
    const std::vector<int> usable = normjit::cpu::usable_processors();
    for (int cpu = 0; cpu <= std::max(usable.back(), 1000); ++cpu) {
        const auto cache = std::filesystem::path(folder / "cpu") / ("cpu" + std::to_string(cpu)) / "cache";
        const std::string own = std::to_string(cpu);
        const bool is_usable = std::ranges::binary_search(usable, cpu);
        if (!is_usable && cpu % 100 != 99) continue;  // some of the unusable processors exist
        write_cache(cache / "index0", "1", "48K", own);
        write_cache(cache / "index1", "2", "64K", own);
        write_cache(cache / "index2", "3", "2M", is_usable ? "ours" : "others");
    }
    CHECK(cache_bytes(target, folder / "cpu") == static_cast<int64_t>(usable.size()) * (64 << 10) + 2 * megabyte);
    CHECK(cache_bytes(target) > 0);
}
