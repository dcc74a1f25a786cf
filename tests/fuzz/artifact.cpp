// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as an artifact, and also an artifact that is drawn from the bytes, damaged by them, and given a
// matching checksum. An accepted artifact must serialise to bytes that read back as the same artifact, and is checked
// for a CPU. Its code never runs; a formula, which is only data, is prepared to run.
#include "backend/portable/program.h"
#include "fuzz.h"
#include "kernel/check_artifact.h"
#include "mutate.h"
#include "random_spec.h"
#include "support/text.h"

#include "normjit/compile.h"
#include "normjit/serialise.h"

#include <string>

#include <fmt/format.h>

using namespace normjit;

namespace {

void check(std::string_view bytes) {
    const auto artifact = parse_artifact(bytes);
    if (!artifact) return fuzz::require_error(artifact.status(), "artifact: ");
    const std::string printed = serialise(*artifact);
    const auto again = parse_artifact(printed);
    fuzz::require(again.ok(), "what was written is refused", again.status().message());
    fuzz::require(*again == *artifact, "what was written is another artifact", printed);
    fuzz::require(serialise(*again) == printed, "it is written differently the second time", printed);
    static const Target machine = *parse_target("x86-64-avx512 bf16=1 fp16=1");
    if (artifact->target.is_cuda() || !check_cpu_artifact(*artifact, machine).ok()) return;
    if (artifact->format == CodeFormat::portable) static_cast<void>(PortableProgram::make(*artifact));
}

std::string with_checksum(std::string_view bytes) {
    return fmt::format("{}checksum {}\n", bytes, text::checksum(bytes));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    check(fuzz::as_text(data, size));
    test::Random random(std::span(data, size));
    static const Target targets[] = {*parse_target("x86-64 backend=portable"), *parse_target("x86-64-avx512 cores=8"),
                                     *parse_target("aarch64 backend=portable")};
    const Spec spec = test::random_spec(random, {.max_cols = 100, .max_rows = 9});
    const Target target = random.pick(targets);
    const Schedule schedule = random.chance(50) ? heuristic(spec, target) : test::random_schedule(random);
    const auto artifact = compile(spec, schedule, target);
    if (!artifact) return 0;
    const std::string bytes = serialise(*artifact);
    check(bytes);
    fuzz::require(parse_artifact(bytes).ok(), "an artifact is refused", parse_artifact(bytes).status().message());
    const std::string damaged = test::mutate(random, bytes.substr(0, bytes.rfind("checksum ")));
    check(damaged);
    check(with_checksum(damaged));
    return 0;
}
