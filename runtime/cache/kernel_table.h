// SPDX-License-Identifier: Apache-2.0
// The kernels that an engine has ready, by the requests that they answer. If there are too many, kernels that only the
// table holds are dropped, the least recently used first. Thread safe.
#pragma once

#include "cache/request.h"

#include "normjit/kernel.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace normjit::cache {

using LoadedKernel = std::shared_ptr<const Kernel::Impl>;

class KernelTable {
  public:
    struct Limits {
        int64_t kernels = INT64_MAX;
        int64_t bytes = INT64_MAX;  ///< bytes of their code, both in the artifact and as it is loaded
    };

    explicit KernelTable(const Limits& limits) : limits_(limits) {}

    /// Returns null if there is no kernel for the request.
    LoadedKernel find(const Request& request) const;

    /// Makes find() return this kernel, unless the request already has one. A kernel may answer several requests.
    void add(const Request& request, const LoadedKernel& kernel);
    /// Does the same, but replaces an existing one.
    void replace(const Request& request, const LoadedKernel& kernel);

    /// Returns the number of kernels.
    size_t size() const;

  private:
    struct Node {
        LoadedKernel kernel;
        int64_t bytes = 0;
        std::vector<Request> requests;
        std::atomic<uint64_t> used;  ///< the tick_ at its last use
    };

    void insert(const Request& request, const LoadedKernel& kernel);
    void drop(const Request& request, std::vector<LoadedKernel>& dropped);
    void make_room(std::vector<LoadedKernel>& dropped);
    void erase(Node& node, std::vector<LoadedKernel>& dropped);

    const Limits limits_;
    std::unordered_map<const Kernel::Impl*, Node> nodes_;
    std::unordered_map<Request, Node*, RequestHash> by_request_;
    int64_t bytes_ = 0;
    uint64_t tick_ = 0;  ///< counts additions
};

}  // namespace normjit::cache
