// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernel.h"

#include "arguments.h"
#include "environment.h"

#include <algorithm>

namespace normjit::cpu {

namespace {

/// Fewer elements than this are not worth a second thread: handing out a task costs about 1 us, as much as the
/// arithmetic of some thousand elements.
constexpr int64_t elements_for_threads = 32 << 10;

/// Streaming stores write whole lines.
constexpr int64_t line_bytes = 64;

/// One launch, on the caller's stack. Its tasks only read it.
class Launch {
  public:
    Launch(const CpuKernel& kernel, const Arguments& arguments)
        : kernel_(kernel),
          spec_(kernel.artifact.spec),
          geometry_(kernel.artifact.geometry),
          arguments_(arguments),
          groups_(geometry_.groups(arguments.rows, arguments.workspace_bytes)),
          rows_function_(is_streamed() ? kernel.rows_stream : kernel.rows) {}

    void run_rows() const { run<&Launch::run_row_group>(groups_); }

    void run_final_reduce() const {
        if (geometry_.column_sums == 0) return;
        run<&Launch::run_final_columns>((spec_.cols + geometry_.final_cols - 1) / geometry_.final_cols);
    }

  private:
    template <void (Launch::*task)(int64_t) const>
    void run(int64_t tasks) const {
        if (tasks <= 1 || arguments_.rows * spec_.cols < elements_for_threads) {
            for (int64_t i = 0; i < tasks; ++i) (this->*task)(i);
            return;
        }
        const auto call = [](void* launch, int64_t i) { (static_cast<const Launch*>(launch)->*task)(i); };
        kernel_.threads->run(tasks, call, const_cast<Launch*>(this));
    }

    int64_t size(Tensor tensor) const { return static_cast<int64_t>(size_of(*spec_.dtypes[tensor])); }

    /// Past the caches: more traffic than they hold, and whole lines to write.
    bool is_streamed() const {
        if (kernel_.rows_stream == nullptr || geometry_.stream_bytes < 0) return false;
        const int64_t bytes = arguments_.rows * spec_.cols * (size(Tensor::x) + size(Tensor::dy) + size(Tensor::dx));
        const Argument& dx = arguments_[Tensor::dx];
        return bytes >= geometry_.stream_bytes && reinterpret_cast<uintptr_t>(dx.data) % line_bytes == 0 &&
               row_stride(dx) * size(Tensor::dx) % line_bytes == 0;
    }

    char* group_partials(int64_t group) const {
        return static_cast<char*>(arguments_.workspace) + group * geometry_.group_bytes;
    }

    void run_row_group(int64_t group) const {
        const int64_t begin = Geometry::row_begin(arguments_.rows, groups_, group);
        const int64_t end = Geometry::row_begin(arguments_.rows, groups_, group + 1);
        RowsTask task;
        for (Tensor tensor : all_tensors) {
            const Argument& given = arguments_[tensor];
            if (!takes_part(spec_, tensor) || given.data == nullptr) continue;
            int64_t row_bytes = 0;
            if (is_matrix(tensor)) row_bytes = task.stride[tensor] = row_stride(given) * size(tensor);
            if (info(tensor).shape == TensorShape::rows) row_bytes = size(tensor);
            task.data[tensor] = static_cast<const char*>(given.data) + begin * row_bytes;
        }
        task.partials = geometry_.group_bytes == 0 ? nullptr : group_partials(group);
        task.rows = end - begin;
        kernel_.program ? kernel_.program->rows(task) : rows_function_(&task);
    }

    void run_final_columns(int64_t range) const {
        const int64_t begin = range * geometry_.final_cols;
        FinalTask task;
        for (Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
            if (!spec_.has(tensor)) continue;
            task.data[tensor] = static_cast<const char*>(arguments_[tensor].data) + begin * size(tensor);
        }
        task.partials = group_partials(0) + begin * static_cast<int64_t>(size_of(spec_.compute()));
        task.group_stride = geometry_.group_bytes;
        task.groups = groups_;
        task.cols = std::min(geometry_.final_cols, spec_.cols - begin);
        kernel_.program ? kernel_.program->final_reduce(task) : kernel_.final_reduce(&task);
    }

    const CpuKernel& kernel_;
    const Spec& spec_;
    const Geometry& geometry_;
    const Arguments& arguments_;
    const int64_t groups_;
    const RowsFunction rows_function_;
};

}  // namespace

CpuKernel::CpuKernel(Artifact made, ExecutableMemory memory, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)), code(std::move(memory)), threads(std::move(workers)) {
    const auto find = [&]<class Function>(const char* entry, Function& function) {
        if (const EntryPoint* found = artifact.find(entry)) function = code->function<Function>(found->offset);
    };
    find("rows", rows);
    find("rows_stream", rows_stream);
    find("final_reduce", final_reduce);
    const std::vector<JitSymbol> symbols = jit_symbols(artifact);
    debugger_entry.emplace(code->data(), static_cast<int64_t>(artifact.code.size()), symbols);
    if (environment().ok() && environment()->perf_map) write_perf_map(code->data(), symbols);
}

CpuKernel::CpuKernel(Artifact made, PortableProgram formula, std::shared_ptr<const Threads> workers)
    : Impl(std::move(made)), program(std::move(formula)), threads(std::move(workers)) {}

Status CpuKernel::launch(const Arguments& arguments) const {
    const Launch launch(*this, arguments);
    launch.run_rows();
    launch.run_final_reduce();
    return {};
}

}  // namespace normjit::cpu
