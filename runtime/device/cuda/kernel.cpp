// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernel.h"

#include "artifact/cuda_abi.h"
#include "device/cuda/code.h"
#include "kernel/arguments.h"
#include "support/try.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace normjit::cuda {

namespace {

/// Hashes the address of the workspace. Simultaneous launches have different workspaces, so few of them share a
/// counter.
uint32_t progress_slot(const void* workspace) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;  // from Knuth's multiplicative hash
    const auto lines = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(workspace)) / workspace_alignment;
    return static_cast<uint32_t>(lines * golden >> 32) % cuda_progress_slots;
}

/// What stays the same from one launch to the next.
class CudaKernel final : public Kernel::Impl {
  public:
    CudaKernel(std::shared_ptr<const Gpu> gpu, Artifact made)
        : Impl(std::move(made)), gpu_(std::move(gpu)), most_rows_in_l2_(most_rows_in_l2()) {}

    /// Loads the code. Must be called once, before launches.
    Status make_paths() {
        NORMJIT_TRY(code_, Code::load(gpu_, artifact.format, artifact.code));
        for (const CudaPath& path : artifact.cuda_paths) {
            LoadedPath& loaded = paths_.emplace_back();
            loaded.path = &path;
            for (const CudaLaunch& launch : path.launches) {
                NORMJIT_TRY(Step step, make_step(*code_, launch));
                loaded.steps.push_back(step);
            }
        }
        return {};
    }

    /// If no tensor has a row for each slice, processes the rows in the order in which memory serves them best.
    Status launch(const LaunchArguments& arguments) const override {
        if (slices_are_inner(arguments)) return launch_in_order(with_slices_as_rows(arguments));
        const int64_t most = most_slices(arguments);
        if (arguments.slices <= most) return launch_in_order(arguments);
        Status status;
        for (int64_t first = 0; first < arguments.slices && status.ok(); first += most)
            status = launch_in_order(slices_of(operands, arguments, first, std::min(most, arguments.slices - first)));
        return status;
    }

  private:
    struct Step {
        const CudaLaunch* launch = nullptr;
        Function function = nullptr;
        std::array<LaunchAttribute, 2> attributes{};
        unsigned attribute_count = 0;
    };
    struct LoadedPath {
        const CudaPath* path = nullptr;
        std::vector<Step> steps;
    };
    struct PathAndPartition {
        const LoadedPath& loaded;
        RowPartition partition;
    };

    static Expected<Step> make_step(const Code& code, const CudaLaunch& launch) {
        Step step;
        step.launch = &launch;
        NORMJIT_TRY(step.function, code.function(launch.entry, {launch.shared_bytes, launch.cluster}));
        const auto add = [&](LaunchAttribute::Id id) -> LaunchAttribute& {
            LaunchAttribute& attribute = step.attributes[step.attribute_count++];
            attribute.id = id;
            return attribute;
        };
        if (launch.cluster > 1) {
            add(LaunchAttribute::cluster_dimension).value.cluster = {static_cast<unsigned>(launch.cluster), 1, 1};
        }
        if (launch.dependent) add(LaunchAttribute::programmatic_stream_serialization).value.allowed = 1;
        return step;
    }

    /// True if addresses and strides fulfil the conditions of CudaPath::shifted.
    bool starts_alike(const LaunchArguments& arguments, const CudaPath& path) const {
        constexpr uintptr_t vector_bytes = 16;
        const int64_t rows = arguments.rows;
        const LaunchOperand& first = given(arguments, operands.matrices()[0]);
        const auto alike = [&](const Operand& operand) {
            if (!operand.is_matrix() || operand.axes.has_groups()) return true;
            const LaunchOperand& matrix = given(arguments, operand);
            if (reinterpret_cast<uintptr_t>(matrix.data) % vector_bytes != 0) return false;
            if (rows > 1 && (matrix.row_stride - first.row_stride) % path.vector_width != 0) return false;
            if (arguments.slices == 1) return true;
            // A team that continues from slice to slice treats all slices as one. If slices have several rows, row
            // strides have been compared above. Slices of one row follow each other at the slice stride of the first
            // matrix.
            const int64_t wanted = operands.has_per_slice() ? first.slice_stride : rows * first.row_stride;
            return (matrix.slice_stride - wanted) % path.vector_width == 0;
        };
        return std::ranges::all_of(operands, alike);
    }

    bool is_aligned(const LaunchArguments& arguments, const Operand& operand, const CudaPath& path) const {
        const auto multiple = static_cast<uint64_t>(path.alignment(operand.dtype));
        const auto& [data, row_stride, slice_stride] = given(arguments, operand);
        uint64_t bits = reinterpret_cast<uintptr_t>(data);
        if (operand.is_matrix() && arguments.rows > 1) bits |= static_cast<uint64_t>(row_stride * operand.bytes());
        if (arguments.slices > 1 && (operand.is_matrix() || operand.is_per_slice()))
            bits |= static_cast<uint64_t>(slice_stride * operand.bytes());
        return bits % multiple == 0;
    }

    const LaunchOperand& given(const LaunchArguments& arguments, const Operand& operand) const {
        return arguments.operands[operands.place(operand)];
    }
    /// Returns an operand that a path would load as vectors but that is not aligned for them; null if there is none.
    const Operand* find_unaligned(const LaunchArguments& arguments, const CudaPath& path) const {
        const auto found = std::ranges::find_if(operands, [&](const Operand& operand) {
            const bool is_column_vector =
                operand.is_per_slice() || (operand.axes.is_columns() && !operand.is_written());
            const bool is_whole_matrix = operand.is_matrix() && !operand.axes.has_groups();
            const bool by_vectors = is_whole_matrix || (is_column_vector && !operand.axes.has_runs());
            return by_vectors && !is_aligned(arguments, operand, path);
        });
        return found == operands.end() ? nullptr : &*found;
    }

    /// Returns how a launch shares its rows on a path; nothing if its tensors do not allow that path.
    std::optional<RowPartition> partition_if_allowed(const LaunchArguments& arguments, const CudaPath& path) const {
        const bool allowed = path.shifted ? starts_alike(arguments, path) : find_unaligned(arguments, path) == nullptr;
        if (!allowed) return {};
        const RowPartition made = partition(arguments, path);
        if (!path.shifted) return made;
        const LaunchOperand& first = given(arguments, operands.matrices()[0]);
        const bool sums_slices =
            operands.has_per_slice() && !std::ranges::all_of(operands.column_outputs(), &Operand::is_per_slice);
        const bool sums_alike = !sums_slices || path.pieces_start_alike(made, first.row_stride, first.slice_stride);
        return made.row_groups > 0 && sums_alike ? std::optional(made) : std::nullopt;
    }

    /// Returns the path with the widest vectors that the addresses of this launch allow, and how it shares the rows.
    /// The last path takes any addresses, except with spec.invariant, neighbour() or groups of columns.
    Expected<PathAndPartition> path_for(const LaunchArguments& arguments) const {
        const LoadedPath& last = paths_.back();
        const bool has_rows = arguments.batch().all_rows() > 0;
        for (const LoadedPath& loaded : paths_) {
            if (!has_rows || &loaded == &last) break;
            if (const auto allowed = partition_if_allowed(arguments, *loaded.path))
                return PathAndPartition{loaded, *allowed};
        }
        const Spec& spec = artifact.spec;
        const bool has_groups = spec.group_columns() > 0;
        const bool needs_vectors = spec.invariant || spec.has_neighbours() || has_groups;
        const Operand* unaligned = has_rows && needs_vectors ? find_unaligned(arguments, *last.path) : nullptr;
        if (unaligned == nullptr) return PathAndPartition{last, partition(arguments, *last.path)};
        const auto [what, why] =
            has_groups       ? std::pair("group_max", "a group of columns is made of whole vectors")
            : spec.invariant ? std::pair("invariant=1", "the vectors that are loaded decide the order of a row's sums")
                             : std::pair("neighbour()", "the columns of a pair are loaded together");
        return invalid_argument(
            fmt::format("launch: {}: with {} its address and row stride in bytes must be multiples of {}; {}",
                        unaligned->name, what, last.path->alignment(unaligned->dtype), why));
    }

    RowPartition partition(const LaunchArguments& arguments, const CudaPath& path) const {
        return path.partition(operands, artifact.geometry, arguments.batch(), arguments.workspace_bytes);
    }

    Expected<CudaArguments> code_arguments(const LaunchArguments& arguments, const CudaPath& path,
                                           const RowPartition& partition) const {
        const Geometry& geometry = artifact.geometry;
        const bool has_slices = artifact.spec.has_slices();
        CudaArguments to{};
        for (size_t place = 0; place < operands.size(); ++place) {
            const auto& [data, row_stride, slice_stride] = arguments.operands[place];
            to.operand[place] = {data, row_stride};
            if (has_slices) to.slice_stride[place] = slice_stride;
        }
        const int64_t rows = arguments.batch().all_rows();
        auto* workspace = static_cast<char*>(arguments.workspace);
        to.partials = workspace + geometry.partials_at(rows);
        to.row_values = workspace;
        to.progress_slot = progress_slot(workspace);
        to.rows = rows;
        to.slice_rows = arguments.rows;
        to.reduced_slices = std::min(partition.reduced_slices, arguments.slices);
        if (partition.row_groups == 0) return to;
        to.parts = static_cast<uint32_t>(partition.parts);
        to.row_groups = static_cast<uint32_t>(partition.row_groups);
        to.pieces = static_cast<uint32_t>(partition.pieces);
        to.partial_rows = static_cast<uint32_t>(geometry.cuda.slice_parts > 0 &&
                                                        (partition.parts > 1 || geometry.cuda.finishes_slices == 1)
                                                    ? partition.pieces
                                                    : partition.row_groups);
        const int64_t shared = operands.has_per_slice() ? arguments.rows : rows;
        const int64_t rows_at_a_time = partition.parts * path.rows_per_block;
        const int64_t each = shared / rows_at_a_time;
        if (path.rows_per_team == 1 && shared > rows_at_a_time) {
            return invalid_argument(fmt::format("launch: rows: {}; a kernel with rows_per_team=1 takes at most {} rows",
                                                arguments.rows, rows_at_a_time));
        }
        // The index of a group's next piece must fit in the code's 32 bits as well.
        const bool counts =
            partition.pieces <= UINT32_MAX - partition.row_groups && (!has_slices || arguments.rows <= INT32_MAX);
        if (each > UINT32_MAX || !counts) {
            return invalid_argument(fmt::format(
                "launch: rows: {}; a kernel with {} row groups takes at most {} rows, or {} with slices, of "
                "which it takes {}",
                arguments.rows, partition.row_groups, rows_at_a_time * int64_t{UINT32_MAX}, INT32_MAX, UINT32_MAX));
        }
        to.rows_each = static_cast<uint32_t>(each);
        to.rows_extra = static_cast<uint32_t>(shared % rows_at_a_time);
        return to;
    }

    /// Returns the most rows per slice with which a matrix that all slices share stays in L2 (NOTES N-720).
    int64_t most_rows_in_l2() const {
        const auto matrices = operands.matrices();
        const auto has_slices = [](const Operand& matrix) { return matrix.axes.slice; };
        if (std::ranges::all_of(matrices, has_slices) || std::ranges::none_of(matrices, has_slices)) return INT64_MAX;
        const int64_t stays = artifact.target.cuda.l2_bytes / 5 * 2;
        const int64_t of_one = bytes_moved(artifact.spec, 1), of_row = bytes_moved(artifact.spec, 2) - of_one;
        return std::max<int64_t>(stays - (of_one - of_row), 0) / of_row;
    }

    /// True if the launch should process the same row of all slices before the next row. That is so if these rows lie
    /// closer together than those of one slice, or if a matrix that all slices share would leave L2 before the next
    /// slice needs it.
    bool slices_are_inner(const LaunchArguments& arguments) const {
        if (operands.has_per_slice() || arguments.slices <= 1 || arguments.rows <= 1) return false;
        return arguments.rows > most_rows_in_l2_ || slices_lie_closer(operands, arguments);
    }

    /// Returns the most slices that one launch can take. Outputs that are made from partials need partials for every
    /// slice that the launch takes. If there are sums over all slices as well, one launch takes all slices; a check has
    /// made sure that the workspace has room for that.
    int64_t most_slices(const LaunchArguments& arguments) const {
        const CudaGeometry& geometry = artifact.geometry.cuda;
        if (geometry.finishes_slices == 0 || geometry.all_slices == 1 || arguments.rows == 0) return INT64_MAX;
        return artifact.geometry.partials(arguments.batch().all_rows(), arguments.workspace_bytes);
    }

    Status launch_in_order(const LaunchArguments& arguments) const {
        NORMJIT_TRY(const auto chosen, path_for(arguments));
        NORMJIT_TRY(CudaArguments to, code_arguments(arguments, *chosen.loaded.path, chosen.partition));
        const ContextScope scope(*gpu_);
        NORMJIT_RETURN_IF_ERROR(scope.status());
        const auto stream = static_cast<Stream>(arguments.stream);
        for (const Step& step : chosen.loaded.steps) NORMJIT_RETURN_IF_ERROR(run(step, chosen.partition, stream, to));
        return {};
    }

    Status run(const Step& step, const RowPartition& partition, Stream stream, CudaArguments& to) const {
        const CudaLaunch& launch = *step.launch;
        const auto [x, y, z] = launch.grid_of(artifact.geometry, to.rows, partition);
        if (x == 0 || y == 0 || z == 0) return {};
        LaunchConfig config;
        config.grid[0] = static_cast<unsigned>(x);
        config.grid[1] = static_cast<unsigned>(y);
        config.grid[2] = static_cast<unsigned>(z);
        config.block[0] = static_cast<unsigned>(launch.threads);
        config.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
        config.stream = stream;
        config.attributes = step.attributes.data();
        config.attribute_count = step.attribute_count;
        void* parameters[] = {&to};
        const Driver& driver = gpu_->driver();
        return driver.check(driver.cuLaunchKernelEx(&config, step.function, parameters, nullptr), "launching a kernel");
    }

    const std::shared_ptr<const Gpu> gpu_;
    const int64_t most_rows_in_l2_;  ///< INT64_MAX if slices share no matrix
    std::unique_ptr<const Code> code_;
    std::vector<LoadedPath> paths_;
};

}  // namespace

Expected<std::shared_ptr<const Kernel::Impl>> load_kernel(std::shared_ptr<const Gpu> gpu, const Artifact& artifact) {
    const RelaxedCapture relaxed(gpu->driver());
    NORMJIT_RETURN_IF_ERROR(relaxed.status());
    const ContextScope scope(*gpu);
    NORMJIT_RETURN_IF_ERROR(scope.status());
    const auto kernel = std::make_shared<CudaKernel>(gpu, artifact);
    NORMJIT_RETURN_IF_ERROR(kernel->make_paths());
    return std::shared_ptr<const Kernel::Impl>(kernel);
}

}  // namespace normjit::cuda
