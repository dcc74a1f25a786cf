// SPDX-License-Identifier: Apache-2.0
// Checks what a launch passes to the driver (kernels, grids, attributes, arguments) and which path it takes.
#include "fake_gpu.h"

#include <thread>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::test;

namespace {

constexpr const char* row_spec = "layernorm cols=4096 x=bf16 gamma=f32";
constexpr const char* row_schedule =
    "cuda row_groups=264 threads_per_row=256 vector_width=8 pipeline_depth=3 staging=bulk blocks_per_sm=2";

using Dims = std::array<unsigned, 3>;

const void* moved(Tensor tensor, uint64_t bytes) {
    return reinterpret_cast<const void*>(tensor_address(tensor) + bytes);
}

void check_launch(const Kernel& kernel, const Arguments& arguments) {
    normjit_fake_cuda()->launches.clear();
    const Status status = kernel.launch(arguments);
    REQUIRE_MESSAGE(status.ok(), status.message());
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a block per row: grid, block, shared memory, the dependent final reduce") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    auto* stream = reinterpret_cast<cuda::Stream>(0x1234);
    Arguments arguments = fake_arguments(kernel, 10000);
    arguments.stream = stream;
    check_launch(kernel, arguments);
    REQUIRE(fake.launches.size() == 2);
    const FakeLaunch &rows = fake.launches[0], &final = fake.launches[1];
    CHECK(rows.kernel == "normjit_layernorm_backward_bf16_4096_rows");
    CHECK(rows.grid == Dims{264, 1, 1});
    CHECK(rows.block == Dims{256, 1, 1});
    // Three stages of x and dy; two buffers for two sums of eight warps; mean and rstd for each warp and stage;
    // barriers.
    CHECK(rows.shared_bytes == 3 * 4096 * 4 + 2 * 2 * 8 * 4 + 3 * 8 * 2 * 8 + 3 * 8);
    CHECK(rows.cluster == 0);
    CHECK(!rows.dependent);
    CHECK(final.kernel == "normjit_layernorm_backward_bf16_4096_final_reduce");
    CHECK(final.grid == Dims{128, 2, 1});
    CHECK(final.block == Dims{256, 1, 1});
    CHECK(final.shared_bytes == 0);
    CHECK(final.dependent);
    for (const FakeLaunch& launch : fake.launches) CHECK(launch.stream == stream);
    CHECK(fake.attributes.at(rows.kernel).at(cuda::max_dynamic_shared_size_bytes) ==
          static_cast<int>(rows.shared_bytes));
    CHECK(!fake.attributes.contains(final.kernel));
}

TEST_CASE("arguments have the order of cuda_abi.h") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel =
        fake_kernel(fake_engine(), "layernorm cols=4096 x=bf16 gamma=f32 dresidual=bf16", row_schedule);
    Arguments arguments = fake_arguments(kernel, 10000);
    arguments[Tensor::dy].row_stride = 8192;
    arguments[Tensor::dresidual].row_stride = 0;
    check_launch(kernel, arguments);
    const CudaArguments& a = fake.launches[0].arguments;
    const auto operand = [&](Tensor tensor) -> const CudaOperand& {
        return a.operand[OperandList(kernel.artifact().spec).place(tensor)];
    };
    CHECK(operand(Tensor::x).data == moved(Tensor::x, 0));
    CHECK(operand(Tensor::dy).data == moved(Tensor::dy, 0));
    CHECK(operand(Tensor::dresidual).data == moved(Tensor::dresidual, 0));
    CHECK(operand(Tensor::x).row_stride == 4096);
    CHECK(operand(Tensor::dy).row_stride == 8192);
    CHECK(operand(Tensor::dresidual).row_stride == 0);
    CHECK(operand(Tensor::dx).row_stride == 4096);
    for (const Tensor tensor : {Tensor::dx, Tensor::gamma, Tensor::mean, Tensor::rstd, Tensor::dgamma, Tensor::dbeta})
        CHECK(operand(tensor).data == moved(tensor, 0));
    CHECK(a.rows == 10000);
    CHECK(a.row_groups == 264);
    CHECK(a.rows_each == 10000 / 264);
    CHECK(a.rows_extra == 10000 % 264);
    CHECK(a.progress_slot < cuda_progress_slots);
    CHECK(a.partials == reinterpret_cast<void*>(workspace_address));
    CHECK(fake.launches[1].arguments.row_groups == 264);
}

TEST_CASE("fewer rows or less workspace: fewer groups") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    Arguments arguments = fake_arguments(kernel, 100);
    check_launch(kernel, arguments);
    CHECK(fake.launches[0].grid == Dims{100, 1, 1});
    CHECK(fake.launches[1].arguments.row_groups == 100);
    arguments.workspace_bytes = 7 * 2 * 4096 * 4 + 5;  // room for 7 groups of dgamma and dbeta
    check_launch(kernel, arguments);
    CHECK(fake.launches[0].grid == Dims{7, 1, 1});
    CHECK(fake.launches[0].arguments.rows_each == 14);
    CHECK(fake.launches[0].arguments.rows_extra == 2);
    arguments.workspace_bytes = kernel.minimum_workspace(100);
    check_launch(kernel, arguments);
    CHECK(fake.launches[0].grid == Dims{1, 1, 1});
    arguments.workspace_bytes -= 1;
    CHECK(kernel.launch(arguments).code() == Code::invalid_argument);
    CHECK(fake.launches.size() == 2);  // nothing else was launched
}

TEST_CASE("several rows per block: groups of whole blocks") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), "rmsnorm cols=256 x=bf16",
                                      "cuda row_groups=396 threads_per_row=32 rows_per_block=8 vector_width=8");
    check_launch(kernel, fake_arguments(kernel, 801));
    CHECK(fake.launches[0].grid == Dims{101, 1, 1});
    CHECK(fake.launches[0].block == Dims{256, 1, 1});
    CHECK(fake.launches[0].arguments.rows_each == 0);
    CHECK(fake.launches[0].arguments.rows_extra == 801);
    CHECK(fake.launches[1].grid == Dims{16, 1, 1});
}

TEST_CASE("rows that start anywhere in a vector: together or one by one") {
    const Kernel kernel =
        fake_kernel(fake_engine(), "layernorm cols=4097 x=bf16",
                    "cuda row_groups=128 threads_per_row=288 vector_width=8 pipeline_depth=3 staging=async");
    const auto path = [&](const Arguments& arguments) {
        check_launch(kernel, arguments);
        return launched()[0];
    };
    const Arguments good = fake_arguments(kernel, 1000);
    CHECK(path(good) == "rows");
    Arguments arguments = good;
    for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx}) arguments[tensor].row_stride = 4097 + 3;
    CHECK(path(arguments) == "rows");
    arguments[Tensor::dy].row_stride = 4097 + 3 + 8;
    CHECK(path(arguments) == "rows");
    arguments[Tensor::dy].row_stride = 4097 + 4;
    CHECK(path(arguments) == "rows_unaligned");
    arguments = good;
    arguments[Tensor::dx].row_stride = 4097 + 1;
    CHECK(path(arguments) == "rows_unaligned");
    arguments = good;
    arguments[Tensor::x].data = moved(Tensor::x, 2);
    CHECK(path(arguments) == "rows_unaligned");
    arguments = good;
    arguments[Tensor::gamma].data = moved(Tensor::gamma, 2);
    CHECK(path(arguments) == "rows");
    arguments.workspace_bytes = 7 * 2 * 4097 * 4;  // room for fewer groups than vectors have elements
    CHECK(path(arguments) == "rows_unaligned");
    arguments.rows = 7;  // but each group has one row
    CHECK(path(arguments) == "rows");
    CHECK(normjit_fake_cuda()->launches[0].grid == Dims{7, 1, 1});
}

TEST_CASE("slices of one row that start anywhere: together only if those of all matrices start alike") {
    const Kernel kernel =
        fake_kernel(fake_engine(), "layernorm slices=any cols=4097 x=bf16",
                    "cuda row_groups=128 threads_per_row=288 vector_width=8 pipeline_depth=3 staging=async");
    const auto path = [&](int64_t stride_of_dx) {
        Arguments arguments = fake_arguments(kernel, 1);
        arguments.slices = 1000;
        for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx})
            arguments[tensor].row_stride = arguments[tensor].slice_stride = tensor == Tensor::dx ? stride_of_dx : 4097;
        check_launch(kernel, arguments);
        return launched();
    };
    CHECK(path(4097) == Names{"rows", "final_reduce"});
    CHECK(path(4097 + 8) == Names{"rows", "final_reduce"});
    CHECK(path(4097 + 1) == Names{"rows_unaligned", "final_reduce"});
}

TEST_CASE("the order of rows: those of one slice, unless slices lie closer together or share a matrix that leaves L2") {
    const FakeCuda& fake = fake_driver();
    const auto rows_before_next_slice = [&](const char* formula, int64_t rows, bool has_heads) {
        const Kernel kernel =
            fake_kernel(fake_engine(), formula, "cuda row_groups=132 threads_per_row=16 vector_width=8");
        const Spec& spec = kernel.artifact().spec;
        Arguments arguments = fake_arguments(kernel, rows);
        arguments.slices = 4;
        for (const char* name : {"x", "y", "z"}) {
            const auto tensor = spec.find(name);
            if (!tensor) continue;
            Argument& matrix = arguments[*tensor];
            matrix.cols = 128;
            matrix.row_stride = has_heads ? 4 * 128 : 128;
            if (*name != 'z') matrix.slice_stride = has_heads ? 128 : rows * 128;
        }
        check_launch(kernel, arguments);
        return fake.launches[0].arguments.slice_rows;
    };
    const char* const shares =
        "norm f(x[S,M,N], z[M,N]) -> y[S,M,N] { y = x * z } pass=forward slices=any cols=128 x=bf16";
    const char* const alone = "norm f(x[S,M,N]) -> y[S,M,N] { y = x * x } pass=forward slices=any cols=128 x=bf16";
    for (const int64_t rows : {1000, 1000000}) {
        CHECK(rows_before_next_slice(alone, rows, false) == rows);
        CHECK(rows_before_next_slice(alone, rows, true) == 4);
        CHECK(rows_before_next_slice(shares, rows, true) == 4);
    }
    CHECK(rows_before_next_slice(shares, 1000, false) == 1000);
    CHECK(rows_before_next_slice(shares, 1000000, false) == 4);
}

TEST_CASE("a cluster per row") {
    FakeCuda& fake = fake_driver();
    const char* spec = "layernorm cols=65536 x=bf16 gamma=f32";
    const std::string schedule =
        "cuda row_groups=8 threads_per_row=512 vector_width=8 pipeline_depth=1 staging=bulk cluster=";
    const Engine engine = fake_engine();
    const Kernel eight = fake_kernel(engine, "layernorm cols=32768 x=bf16 gamma=f32", (schedule + "8").c_str());
    check_launch(eight, fake_arguments(eight, 100));
    CHECK(fake.launches[0].grid == Dims{64, 1, 1});
    CHECK(fake.launches[0].cluster == 8);
    CHECK(!fake.attributes[fake.launches[0].kernel].contains(cuda::non_portable_cluster_size_allowed));
    const Kernel sixteen = fake_kernel(engine, spec, (schedule + "16").c_str());
    check_launch(sixteen, fake_arguments(sixteen, 3));
    CHECK(fake.launches[0].grid == Dims{48, 1, 1});
    CHECK(fake.launches[0].cluster == 16);
    CHECK(fake.attributes.at(fake.launches[0].kernel).at(cuda::non_portable_cluster_size_allowed) == 1);
}

TEST_CASE("the two-pass form: two passes and their workspace") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel =
        fake_kernel(fake_engine(), "layernorm cols=300000 x=bf16",
                    "cuda form=two_pass row_groups=5 threads_per_row=256 vector_width=4 pipeline_depth=2");
    const int64_t rows = 1001;
    check_launch(kernel, fake_arguments(kernel, rows));
    CHECK(launched() == Names{"row_sums", "columns", "final_reduce"});
    CHECK(fake.launches[0].grid == Dims{1001, 1, 1});  // at most 8 blocks on each of 132 multiprocessors
    CHECK(fake.launches[1].grid == Dims{293, 5, 1});   // ceil(300000 / 4 / 256) column tiles
    CHECK(fake.launches[2].grid == Dims{2344, 2, 1});
    CHECK(!fake.launches[0].dependent);
    CHECK(fake.launches[1].dependent);
    CHECK(fake.launches[2].dependent);
    const CudaArguments& a = fake.launches[1].arguments;
    CHECK(a.row_values == reinterpret_cast<void*>(workspace_address));
    const int64_t row_bytes = kernel.artifact().geometry.cuda.row_bytes;
    CHECK(row_bytes == 16);  // mean, rstd, c1, c2
    CHECK(a.partials == reinterpret_cast<void*>(workspace_address + (rows * row_bytes + 63) / 64 * 64));
    check_launch(kernel, fake_arguments(kernel, 5000));
    CHECK(fake.launches[0].grid == Dims{132 * 8, 1, 1});
}

TEST_CASE("less aligned data takes the unaligned path, unused data does not count") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    const Names wide = {"rows", "final_reduce"}, unaligned = {"rows_unaligned", "final_reduce"};
    const auto path_with = [&](auto change) {
        Arguments arguments = fake_arguments(kernel, 50);
        change(arguments);
        check_launch(kernel, arguments);
        return launched();
    };
    CHECK(path_with([](Arguments&) {}) == wide);
    for (Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx}) {
        CHECK(path_with([&](Arguments& a) { a[tensor].data = moved(tensor, 2); }) == unaligned);
        CHECK(path_with([&](Arguments& a) { a[tensor].data = moved(tensor, 8); }) == unaligned);
        CHECK(path_with([&](Arguments& a) { a[tensor].data = moved(tensor, 16); }) == wide);
        CHECK(path_with([&](Arguments& a) { a[tensor].row_stride = 4097; }) == unaligned);
        CHECK(path_with([&](Arguments& a) { a[tensor].row_stride = 4104; }) == wide);
        CHECK(path_with([&](Arguments& a) { a[tensor].row_stride = 4097, a.rows = 1; }) == wide);
    }
    CHECK(path_with([](Arguments& a) { a[Tensor::gamma].data = moved(Tensor::gamma, 4); }) == unaligned);
    for (Tensor tensor : {Tensor::mean, Tensor::rstd, Tensor::dgamma, Tensor::dbeta})
        CHECK(path_with([&](Arguments& a) { a[tensor].data = moved(tensor, 4); }) == wide);

    CHECK(path_with([](Arguments& a) { a[Tensor::x].data = moved(Tensor::x, 2); }) == unaligned);
    CHECK(fake.launches[0].block == Dims{512, 1, 1});
    CHECK(fake.launches[0].arguments.operand[0].data == moved(Tensor::x, 2));
    const Kernel no_gradients = fake_kernel(fake_engine(), "rmsnorm cols=4096 x=bf16 gamma=none out=dx",
                                            "cuda row_groups=99 threads_per_row=256 vector_width=8");
    Arguments arguments = fake_arguments(no_gradients, 50);
    arguments[Tensor::gamma].data = moved(Tensor::gamma, 1);
    check_launch(no_gradients, arguments);
    CHECK(launched() == Names{"rows"});
}

TEST_CASE("with neighbours data that is not aligned for pairs of columns is refused") {
    fake_driver();
    const Kernel kernel = fake_kernel(
        fake_engine(), "norm f(x[M,N]) -> y[M,N] { y = x * neighbour(x) } pass=forward cols=4096 x=bf16 y=f32",
        "cuda row_groups=99 threads_per_row=256 vector_width=8");
    Arguments arguments = fake_arguments(kernel, 50);
    check_launch(kernel, arguments);
    CHECK(launched() == Names{"rows"});
    arguments[Tensor::x].data = moved(Tensor::x, 4), arguments[Tensor::y].row_stride = 4098;
    check_launch(kernel, arguments);
    CHECK(launched().back() == "rows_unaligned");
    arguments[Tensor::y].row_stride = 4097;
    CHECK(
        kernel.launch(arguments).message() ==
        "launch: y: with neighbour() its address and row stride in bytes must be multiples of 8; the columns of a pair "
        "are loaded together");
    arguments[Tensor::x].data = moved(Tensor::x, 2);
    CHECK(kernel.launch(arguments).message().starts_with("launch: x: with neighbour() its address and row stride"));
    arguments.rows = 0;
    CHECK(kernel.launch(arguments).ok());
}

TEST_CASE("groups of columns need whole vectors") {
    const Kernel kernel = fake_kernel(
        fake_engine(),
        "norm f(x[M,N]) -> y[M,N], g[M,N/128] { g = group_max(x, 128); y = x / g } pass=forward cols=4096 x=bf16",
        "cuda row_groups=99 threads_per_row=256 vector_width=8");
    const Tensor x = *kernel.artifact().spec.find("x"), g = *kernel.artifact().spec.find("g");
    Arguments arguments = fake_arguments(kernel, 50);
    arguments[g].data = moved(g, 4), arguments[g].cols = 32;
    check_launch(kernel, arguments);
    CHECK(launched() == Names{"rows"});
    arguments[x].data = moved(x, 2);
    CHECK(
        kernel.launch(arguments).message() ==
        "launch: x: with group_max its address and row stride in bytes must be multiples of 16; a group of columns is "
        "made of whole vectors");
}

TEST_CASE("without rows there is only the final reduce, of no groups") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    check_launch(kernel, fake_arguments(kernel, 0));
    REQUIRE(launched() == Names{"final_reduce"});
    CHECK(fake.launches[0].arguments.row_groups == 0);
    CHECK(fake.launches[0].grid == Dims{128, 2, 1});
}

TEST_CASE("more rows than 32 bits count are refused") {
    const FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), "rmsnorm cols=1 x=bf16 gamma=none out=dx stats=bf16",
                                      "cuda row_groups=1 threads_per_row=1 rows_per_block=32");
    Arguments arguments = fake_arguments(kernel, int64_t{UINT32_MAX} * 32);
    for (Tensor tensor : {Tensor::x, Tensor::dy, Tensor::rstd, Tensor::dx})
        arguments[tensor].data = reinterpret_cast<const void*>((1 + static_cast<uint64_t>(tensor)) << 42);
    check_launch(kernel, arguments);
    CHECK(fake.launches[0].arguments.rows_each == UINT32_MAX);
    arguments.rows += 32;
    const Status status = kernel.launch(arguments);
    CHECK(status.code() == Code::invalid_argument);
    CHECK(status.message().find("takes at most 137438953440 rows") != std::string::npos);
    CHECK(fake.launches.size() == 1);
}

TEST_CASE("the driver's errors are reported, and the next launch works") {
    FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    const Arguments arguments = fake_arguments(kernel, 10);
    for (int good = 0; good < 2; ++good) {
        fake.launches.clear();
        fake.failing = "cuLaunchKernelEx";
        fake.failing_after = good;
        const Status status = kernel.launch(arguments);
        CHECK(status.code() == Code::failed);
        CHECK(status.message() == "cuda: launching a kernel: CUDA_ERROR_LAUNCH_FAILED, unspecified launch failure");
        CHECK(fake.launches.size() == static_cast<size_t>(good));
        fake.failing = "";
        check_launch(kernel, arguments);
        CHECK(fake.launches.size() == 2);
    }
}

TEST_CASE("a launch calls the driver only for the context and its kernels") {
    FakeCuda& fake = fake_driver();
    const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
    const Arguments arguments = fake_arguments(kernel, 10);
    fake.calls.clear();
    check_launch(kernel, arguments);
    CHECK(fake.calls ==
          Names{"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernelEx", "cuLaunchKernelEx", "cuCtxPopCurrent"});
}

TEST_CASE("threads launch at once") {
    const FakeCuda& fake = fake_driver();
    constexpr int threads = 8, each = 200;
    {
        const Kernel kernel = fake_kernel(fake_engine(), row_spec, row_schedule);
        std::vector<std::thread> workers;
        std::atomic<int> failures = 0;
        for (int i = 0; i < threads; ++i) {
            workers.emplace_back([&, i] {
                Arguments arguments = fake_arguments(kernel, i + 1);
                arguments.stream = reinterpret_cast<void*>(uint64_t{0x1000} + static_cast<uint64_t>(i));
                for (int n = 0; n < each; ++n) failures += !kernel.launch(arguments).ok();
                failures += normjit_fake_contexts() != 0;
            });
        }
        for (std::thread& worker : workers) worker.join();
        CHECK(failures == 0);
    }
    CHECK(fake.launches.size() == 2 * threads * each);
    std::map<cuda::Stream, int> by_stream;
    for (const FakeLaunch& launch : fake.launches) {
        ++by_stream[launch.stream];
        CHECK(launch.arguments.rows == static_cast<int64_t>(reinterpret_cast<uint64_t>(launch.stream) - 0x1000 + 1));
        CHECK(launch.context == fake.launches[0].context);
    }
    CHECK(by_stream.size() == threads);
    for (const auto& [stream, count] : by_stream) CHECK(count == 2 * each);
    CHECK(fake.primary_uses.at(0) == 0);
}
