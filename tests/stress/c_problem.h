// SPDX-License-Identifier: Apache-2.0
// Problems from the property tests, between guard pages, through the C interface.
#pragma once

#include "c_objects.h"
#include "problem.h"

#include <string>

namespace normjit::test {

normjit_spec c_spec(const Spec& spec);

/// Returns the arguments of a launch through C, which refer to the problem.
normjit_arguments c_arguments(const Problem& problem);

/// A loaded kernel. It is compiled for the target of the case, which may have fewer instructions than this machine.
struct CKernel {
    normjit_status status = NORMJIT_OK;
    KernelHandle kernel;
    std::string error;
};
CKernel c_kernel(normjit_engine* engine, const Case& a_case);

}  // namespace normjit::test
