// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/control_groups.h"

#include "device/cpu/memory.h"
#include "temporary_folder.h"

#include <filesystem>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace normjit;

namespace {

/// Files like those of the system.
struct Groups {
    test::TemporaryFolder folder;
    cpu::ControlGroups groups = {folder.path(), folder / "own"};

    explicit Groups(std::string_view own) { test::write_text(groups.own, own); }
    void write(const std::string& path, std::string_view text) const {
        const std::filesystem::path file = folder / path;
        std::filesystem::create_directories(file.parent_path());
        test::write_text(file.string(), text);
    }
};

}  // namespace

TEST_CASE("cores that a control group allows") {
    CHECK(cpu::cores_of_quota("200000 100000") == 2);
    CHECK(cpu::cores_of_quota("150000 100000") == 2);
    CHECK(cpu::cores_of_quota("1000 100000") == 1);
    for (const char* none : {"max 100000", "-1 100000", "", "200000", "a b", "100 0"}) {
        CHECK(cpu::cores_of_quota(none) == std::nullopt);
    }
    const Groups containers("0::/\n");  // in most containers the process's group is shown as the root
    CHECK(containers.groups.cores() == std::nullopt);
    containers.write("cpu.max", "300000 100000\n");
    CHECK(containers.groups.cores() == 3);
    const Groups nested("1:name=systemd:/x\n0::/jobs/7\n");
    nested.write("cpu.max", "max 100000\n");
    nested.write("jobs/cpu.max", "400000 100000\n");
    nested.write("jobs/7/cpu.max", "500000 100000\n");
    CHECK(nested.groups.cores() == 4);
    const Groups older("4:cpu,cpuacct:/jobs/7\n3:cpuset:/\n");
    older.write("cpu/jobs/7/cpu.cfs_quota_us", "200000\n");
    older.write("cpu/jobs/7/cpu.cfs_period_us", "100000\n");
    CHECK(older.groups.cores() == 2);
}

TEST_CASE("memory that a control group allows") {
    const Groups containers("0::/\n");
    CHECK(containers.groups.memory() == std::nullopt);
    CHECK(containers.groups.free_memory() == std::nullopt);
    containers.write("memory.max", "max\n");
    CHECK(containers.groups.memory() == std::nullopt);
    containers.write("memory.max", "8000\n");
    CHECK(containers.groups.memory() == 8000);
    CHECK(containers.groups.free_memory() == 8000);
}

TEST_CASE("memory in use is not free, but pages of files that can be dropped are") {
    const Groups containers("0::/\n");
    containers.write("memory.max", "8000\n");
    containers.write("memory.current", "7500\n");
    CHECK(containers.groups.free_memory() == 500);
    containers.write("memory.stat", "anon 5000\ninactive_file 2000\nactive_file 500\n");
    CHECK(containers.groups.free_memory() == 2500);
    containers.write("memory.current", "9000\n");
    containers.write("memory.stat", "inactive_file 0\n");
    CHECK(containers.groups.free_memory() == 0);
    CHECK(containers.groups.memory() == 8000);
}

TEST_CASE("the limits of a process's own group and of its parents hold") {
    const Groups nested("0::/jobs/7\n");
    nested.write("jobs/memory.max", "6000\n");
    nested.write("jobs/memory.current", "5000\n");
    nested.write("jobs/7/memory.max", "4000\n");
    nested.write("jobs/7/memory.current", "1000\n");
    nested.write("jobs/8/memory.max", "1\n");
    CHECK(nested.groups.memory() == 4000);
    CHECK(nested.groups.free_memory() == 1000);
    const Groups older("5:memory:/jobs/7\n4:cpu,cpuacct:/jobs/8\n");
    older.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
    older.write("memory/jobs/7/memory.limit_in_bytes", "3000\n");
    older.write("memory/jobs/7/memory.usage_in_bytes", "2500\n");
    older.write("memory/jobs/7/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
    older.write("memory/jobs/8/memory.limit_in_bytes", "1\n");
    CHECK(older.groups.memory() == 3000);
    CHECK(older.groups.free_memory() == 600);
}

TEST_CASE("the memory that a process may use") {
    CHECK(cpu::usable_memory() > 0);
    CHECK(cpu::usable_memory() <= cpu::physical_memory());
    CHECK(cpu::spare_memory() <= cpu::usable_memory() / 4);
}
