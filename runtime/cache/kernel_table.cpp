// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_table.h"

#include "kernel/kernel_impl.h"
#include "system/fork_gate.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace normjit::cache {

LoadedKernel KernelTable::find(const Request& request) const {
    const std::shared_lock lock(lookup_mutex);
    const auto found = by_request_.find(request);
    if (found == by_request_.end()) return nullptr;
    Node& node = *found->second;
    if (node.used.load(std::memory_order_relaxed) != tick_) node.used.store(tick_, std::memory_order_relaxed);
    return node.kernel;
}

/// `dropped` is declared before the lock, so that it is destroyed after the lock has been released.
void KernelTable::add(const Request& request, const LoadedKernel& kernel) {
    std::vector<LoadedKernel> dropped;
    const std::lock_guard lock(lookup_mutex);
    if (by_request_.contains(request)) return;
    insert(request, kernel);
    make_room(dropped);
}

void KernelTable::replace(const Request& request, const LoadedKernel& kernel) {
    std::vector<LoadedKernel> dropped;
    const std::lock_guard lock(lookup_mutex);
    drop(request, dropped);
    insert(request, kernel);
    make_room(dropped);
}

/// If memory runs out on the way, the kernel is in the table without this request, and is dropped like any other.
void KernelTable::insert(const Request& request, const LoadedKernel& kernel) {
    Node& node = nodes_[kernel.get()];
    node.used = ++tick_;
    if (!node.kernel) {
        node.kernel = kernel;
        node.bytes = 2 * static_cast<int64_t>(kernel->artifact.code.size());
        bytes_ += node.bytes;
    }
    node.requests.push_back(request);
    by_request_.emplace(request, &node);
}

void KernelTable::drop(const Request& request, std::vector<LoadedKernel>& dropped) {
    const auto found = by_request_.find(request);
    if (found == by_request_.end()) return;
    Node& node = *found->second;
    by_request_.erase(found);
    std::erase(node.requests, request);
    if (node.requests.empty()) erase(node, dropped);
}

/// Removes a sixteenth more than necessary, so that the next new kernels need no search.
void KernelTable::make_room(std::vector<LoadedKernel>& dropped) {
    const auto is_over = [&](int64_t slack) {
        return static_cast<int64_t>(nodes_.size()) > limits_.kernels - limits_.kernels / slack ||
               bytes_ > limits_.bytes - limits_.bytes / slack;
    };
    if (!is_over(INT64_MAX)) return;
    std::vector<Node*> unused;
    for (auto& [kernel, node] : nodes_) {
        if (node.kernel.use_count() == 1) unused.push_back(&node);
    }
    std::ranges::sort(unused, {}, [](const Node* node) { return node->used.load(std::memory_order_relaxed); });
    for (Node* node : unused) {
        if (!is_over(16)) return;
        erase(*node, dropped);
    }
}

void KernelTable::erase(Node& node, std::vector<LoadedKernel>& dropped) {
    for (const Request& request : node.requests) by_request_.erase(request);
    bytes_ -= node.bytes;
    dropped.push_back(node.kernel);
    nodes_.erase(node.kernel.get());
}

size_t KernelTable::size() const {
    const std::shared_lock lock(lookup_mutex);
    return nodes_.size();
}

}  // namespace normjit::cache
