// SPDX-License-Identifier: Apache-2.0
// Reads any text as IR. An accepted function verifies, and prints as a text that reads back and prints the same; both
// are still true after every pass.
#include "ir/ir.h"

#include "fuzz.h"
#include "passes/passes.h"

using namespace normjit;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto function = ir::parse(fuzz::as_text(data, size));
    if (!function) {
        fuzz::require_error(function.status(), "");
        return 0;
    }
    fuzz::require(ir::verify(*function).ok(), "what was read does not verify", ir::verify(*function).message());
    const std::string printed = ir::print(*function);
    const auto again = ir::parse(printed);
    fuzz::require(again.ok(), "what was printed is refused", again.status().message() + "\n" + printed);
    fuzz::require(ir::print(*again) == printed, "it prints differently the second time", printed);
    constexpr ir::ValueId few = 200;  // passes may add values, and the parser limits them
    if (function->size() > few) return 0;
    for (const passes::Pass& pass : passes::pipeline()) {
        const auto after = passes::run_pipeline(*function, Target(), pass.name);
        fuzz::require(after.ok(), "a pass broke it", after.status().message() + "\n" + printed);
        const std::string text = ir::print(*after);
        fuzz::require(ir::parse(text).ok(), "what a pass made is refused", text);
    }
    return 0;
}
