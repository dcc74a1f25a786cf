// SPDX-License-Identifier: Apache-2.0
#include "c_problem.h"

namespace normjit::test {

normjit_spec c_spec(const Spec& spec) { return parsed(to_text(spec).c_str()); }

namespace {

int64_t c_stride(int64_t stride) {
    if (stride == Argument::contiguous) return 0;
    return stride == 0 ? NORMJIT_REPEAT_ROW : stride;
}

}  // namespace

normjit_arguments c_arguments(const Problem& problem) {
    const Arguments& from = problem.arguments();
    normjit_arguments to{};
    to.size = sizeof to;
    to.rows = from.rows;
    to.slices = from.slices == 0 ? NORMJIT_NO_SLICES : from.slices;
    to.workspace = from.workspace;
    to.workspace_bytes = from.workspace_bytes;
    for (Tensor tensor : all_tensors) {
        const Argument& argument = from[tensor];
        if (!problem.drawn().spec.takes_part(tensor)) continue;
        const int number = info(tensor).number;
        const int64_t row_stride = is_matrix(tensor) ? c_stride(argument.row_stride) : 0;
        to.tensors[number] = {const_cast<void*>(argument.data), argument.cols, row_stride,
                              static_cast<int32_t>(argument.dtype), 0};
        to.slice_strides[number] = c_stride(argument.slice_stride);
    }
    return to;
}

CKernel c_kernel(normjit_engine* engine, const Case& a_case) {
    const normjit_spec spec = c_spec(a_case.spec);
    CKernel made;
    normjit_artifact* artifact = nullptr;
    normjit_kernel* kernel = nullptr;
    made.status = normjit_compile(to_text(a_case.target).c_str(), &spec, to_text(a_case.schedule).c_str(), &artifact);
    const ArtifactHandle owned(artifact);
    if (made.status == NORMJIT_OK) made.status = normjit_load(engine, artifact, nullptr, &kernel);
    made.kernel.reset(kernel);
    if (made.status != NORMJIT_OK) made.error = normjit_last_error();
    return made;
}

}  // namespace normjit::test
