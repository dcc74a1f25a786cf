// SPDX-License-Identifier: Apache-2.0
#include "normjit/kernel.h"

#include "arguments.h"
#include "kernel_impl.h"
#include "support/try.h"

namespace normjit {

Status Kernel::launch(const Arguments& arguments) const {
    NORMJIT_RETURN_IF_ERROR(check_arguments(impl_->artifact, arguments));
    return impl_->launch(arguments);
}

int64_t Kernel::minimum_workspace(int64_t rows) const { return impl_->artifact.geometry.minimum_workspace(rows); }

int64_t Kernel::preferred_workspace(int64_t rows) const { return impl_->artifact.geometry.preferred_workspace(rows); }

const Artifact& Kernel::artifact() const { return impl_->artifact; }

}  // namespace normjit
