// SPDX-License-Identifier: Apache-2.0
#include "normjit/kernel.h"

#include "kernel/kernel_impl.h"
#include "support/try.h"
#include "system/no_cancellation.h"

#include <fmt/format.h>

namespace normjit {

namespace {

/// A workspace that an allocator lends to one launch.
class LentWorkspace {
  public:
    LentWorkspace(const Allocator& allocator, int64_t bytes, void* stream)
        : allocator_(allocator),
          bytes_(bytes),
          stream_(stream),
          memory_(allocator.allocate(allocator.self, bytes, stream)) {}
    ~LentWorkspace() {
        if (memory_ != nullptr) allocator_.release(allocator_.self, memory_, bytes_, stream_);
    }
    LentWorkspace(const LentWorkspace&) = delete;
    LentWorkspace& operator=(const LentWorkspace&) = delete;

    void* memory() const { return memory_; }

  private:
    const NoCancellation goes_on_;  // the user's functions may be where a thread is cancelled
    const Allocator& allocator_;
    const int64_t bytes_;
    void* const stream_;
    void* const memory_;
};

}  // namespace

Status Kernel::Impl::check_and_launch(const Arguments& arguments) const {
    LaunchArguments placed;
    NORMJIT_RETURN_IF_ERROR(place_arguments(artifact, places, arguments, placed));
    return launch(placed);
}

Status Kernel::launch(const Arguments& arguments) const {
    const bool lent = arguments.workspace == nullptr && allocator_.allocate != nullptr && arguments.rows >= 0 &&
                      arguments.slices >= 0;
    const int64_t bytes = lent ? preferred_workspace(arguments.rows, arguments.slices) : 0;
    if (bytes > 0) {
        const LentWorkspace workspace(allocator_, bytes, arguments.stream);
        if (workspace.memory() == nullptr) {
            return failed(fmt::format("launch: workspace: the engine's allocator provided none of {} bytes", bytes));
        }
        Arguments complete = arguments;
        complete.workspace = workspace.memory();
        complete.workspace_bytes = bytes;
        return impl_->check_and_launch(complete);
    }
    return impl_->check_and_launch(arguments);
}

int64_t Kernel::minimum_workspace(int64_t rows, int64_t slices) const {
    return impl_->artifact.geometry.minimum_workspace({rows, slices});
}

int64_t Kernel::preferred_workspace(int64_t rows, int64_t slices) const {
    return impl_->artifact.geometry.preferred_workspace({rows, slices});
}

const Artifact& Kernel::artifact() const { return impl_->artifact; }

}  // namespace normjit
