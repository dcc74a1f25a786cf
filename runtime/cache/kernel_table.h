// SPDX-License-Identifier: Apache-2.0
// The kernels that an engine has ready, by what they were asked for. Reading takes no lock and writes nothing shared:
// nothing that a reader may hold is ever changed or freed before the table is. Tables that were outgrown are kept as
// well; all of them together are smaller than the present one.
#pragma once

#include "cache/request.h"

#include "normjit/kernel.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace normjit::cache {

class KernelTable {
  public:
    KernelTable();

    /// Null when there is none. Good as long as the table.
    const Kernel* find(const Request& request) const;

    /// From now on find() answers with this kernel, unless there was one already.
    void add(const Request& request, const Kernel& kernel);
    /// The same, but another one gives way to it. Both stay: somebody may be about to launch the old one.
    void replace(const Request& request, const Kernel& kernel);

    size_t size() const;

  private:
    struct Node {
        Request request;
        uint64_t hash;
        std::atomic<const Kernel*> kernel;
    };
    struct Slots {
        explicit Slots(size_t count) : mask(count - 1), nodes(count) {}
        const size_t mask;
        std::vector<std::atomic<Node*>> nodes;  ///< at most half are taken
    };

    static Node* find_in(const Slots& slots, const Request& request, uint64_t hash);
    static void insert_in(Slots& slots, Node& node);
    void insert(const Request& request, uint64_t hash, const Kernel& kernel);
    void grow();

    std::atomic<Slots*> current_;
    mutable std::mutex writers_;
    std::vector<std::unique_ptr<Slots>> all_slots_;
    std::deque<Node> nodes_;
    std::deque<Kernel> kernels_;
};

}  // namespace normjit::cache
