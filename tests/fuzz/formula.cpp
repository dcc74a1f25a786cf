// SPDX-License-Identifier: Apache-2.0
// Reads a line as a spec, and then any text as the formula of its portable artifact. An accepted formula runs on
// exactly the memory that the spec describes, writes all outputs, and gives the same bits when it runs again.
#include "backend/portable/program.h"
#include "fuzz.h"

#include "normjit/compile.h"
#include "normjit/kernel_spec.h"
#include "normjit/operand.h"

#include <optional>
#include <vector>

using namespace normjit;

namespace {

constexpr int64_t rows = 3, most_cols = 200;

/// Heap blocks that are exactly as large as their tensors, so that a sanitizer detects an access to the first byte
/// beyond.
class Memory {
  public:
    explicit Memory(const Artifact& artifact)
        : artifact_(artifact), spec_(kernel_spec(artifact.spec)), operands_(spec_) {
        for (const Operand& operand : operands_) {
            const int64_t in_rows = operand.axes.row ? rows : 1;
            const int64_t in_cols = operand.axes.column ? spec_.cols : 1;
            blocks_.emplace_back(static_cast<size_t>(in_rows * in_cols * operand.bytes()),
                                 operand.is_written() ? uint8_t{0xff} : uint8_t{0x3f});
        }
        partials_.assign(static_cast<size_t>(artifact.geometry.group_bytes), 0xff);
    }

    /// Returns the whole memory after a launch.
    std::vector<std::vector<uint8_t>> run(const PortableProgram& program) {
        RowsTask task;
        FinalTask last;
        for (size_t i = 0; i < blocks_.size(); ++i) {
            task.operands[i] = {blocks_[i].data(), static_cast<int64_t>(blocks_[i].size()) / rows};
            last.data[i] = blocks_[i].data();
        }
        task.partials = partials_.data();
        task.rows = rows;
        program.rows({task});
        last.partials = partials_.data();
        last.group_stride = artifact_.geometry.group_bytes;
        last.groups = 1;
        last.cols = spec_.cols;
        if (artifact_.geometry.column_sums > 0) program.final_reduce(last);
        return blocks_;
    }

  private:
    const Artifact& artifact_;
    const Spec spec_;
    const OperandList operands_;
    std::vector<std::vector<uint8_t>> blocks_;
    std::vector<uint8_t> partials_;
};

std::optional<Artifact> artifact_of(std::string_view spec_text) {
    const auto spec = parse_spec(spec_text);
    if (!spec || spec->cols > most_cols) return std::nullopt;
    static const Target target = *parse_target("x86-64 backend=portable");
    auto artifact = compile(*spec, heuristic(*spec, target), target);
    fuzz::require(artifact.ok(), "a valid spec has no portable artifact", artifact.status().message());
    fuzz::require(PortableProgram::make(*artifact).ok(), "a portable artifact is refused", spec_text);
    return *std::move(artifact);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    const size_t end = text.find('\n');
    if (end == text.npos) return 0;
    auto artifact = artifact_of(text.substr(0, end));
    if (!artifact) return 0;
    artifact->code.assign(data + end + 1, data + size);
    const auto program = PortableProgram::make(*artifact);
    if (!program) {
        fuzz::require_error(program.status(), "");
        return 0;
    }
    fuzz::require(Memory(*artifact).run(*program) == Memory(*artifact).run(*program), "two runs differ", text);
    return 0;
}
