// SPDX-License-Identifier: Apache-2.0
#include "problem/gpu_checked_problem.h"

#include "support/try.h"

namespace normjit::cli {
namespace {

class GpuCheckedProblem final : public CheckedProblem {
  public:
    GpuCheckedProblem(GpuTools tools, GpuProblem problem, std::shared_ptr<const ExpectedOutputs> expected)
        : tools_(std::move(tools)), problem_(std::move(problem)), expected_(std::move(expected)) {}

    bool is_cold() const override { return true; }

    Status check(const Kernel& kernel) override {
        NORMJIT_RETURN_IF_ERROR(problem_.fit(kernel));
        NORMJIT_RETURN_IF_ERROR(problem_.spoil_outputs());
        const Arguments arguments = problem_.arguments(tools_.stream->handle());
        NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
        NORMJIT_RETURN_IF_ERROR(tools_.stream->wait());
        const Spec& spec = problem_.spec();
        std::vector<char> data;
        const auto read = [&](Tensor tensor, int64_t row) {
            const int64_t elements = spec.axes(tensor).width(spec.cols);
            const int64_t bytes = elements * static_cast<int64_t>(size_of(spec.dtype(tensor)));
            data.resize(static_cast<size_t>(bytes));
            return problem_.tensor(tensor).read(row * bytes, data.data(), bytes);
        };
        for (const int64_t row : expected_->rows_to_check()) {
            for (const Operand& output : expected_->row_outputs()) {
                NORMJIT_RETURN_IF_ERROR(read(output.tensor, row));
                NORMJIT_RETURN_IF_ERROR(expected_->check_row(output, row, data.data()));
            }
        }
        const Artifact& artifact = kernel.artifact();
        const int64_t groups = artifact.cuda_paths.front().groups(artifact.geometry, problem_.batch().all_rows(),
                                                                  arguments.workspace_bytes);
        for (const ExpectedOutputs::Columns& columns : expected_->columns_to_check()) {
            NORMJIT_RETURN_IF_ERROR(read(columns.output, columns.slice));
            NORMJIT_RETURN_IF_ERROR(expected_->check_columns(columns, data.data(), groups));
        }
        return {};
    }

    Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
        for (const Kernel& kernel : kernels) NORMJIT_RETURN_IF_ERROR(problem_.fit(kernel));
        const Arguments arguments = problem_.arguments(tools_.stream->handle());
        std::vector<cuda::CapturedGraph> graphs;
        for (const Kernel& kernel : kernels) {
            NORMJIT_TRY(auto graph, tools_.stream->capture([&] { return kernel.launch(arguments); }));
            graphs.push_back(std::move(graph));
        }
        std::vector<cuda::WorkStream::Work> works;
        for (const cuda::CapturedGraph& graph : graphs) works.push_back([&] { return tools_.stream->launch(graph); });
        for (const auto& work : works) NORMJIT_RETURN_IF_ERROR(work());  // the first launch of a graph uploads it
        return tools_.stream->time(rounds, tools_.flush, works);
    }

    Expected<bench::Measurement> measure(const Kernel& kernel, const bench::MeasureOptions& options) override {
        NORMJIT_RETURN_IF_ERROR(problem_.fit(kernel));
        return tools_.measure(kernel, problem_, options);
    }

  private:
    const GpuTools tools_;
    GpuProblem problem_;
    const std::shared_ptr<const ExpectedOutputs> expected_;
};

}  // namespace

std::unique_ptr<CheckedProblem> make_gpu_checked_problem(GpuTools tools, GpuProblem problem,
                                                         std::shared_ptr<const ExpectedOutputs> expected) {
    return std::make_unique<GpuCheckedProblem>(std::move(tools), std::move(problem), std::move(expected));
}

}  // namespace normjit::cli
