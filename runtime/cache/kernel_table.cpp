// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_table.h"

namespace normjit::cache {

namespace {

constexpr size_t first_slots = 64;

}  // namespace

KernelTable::KernelTable() {
    all_slots_.push_back(std::make_unique<Slots>(first_slots));
    current_.store(all_slots_.back().get(), std::memory_order_release);
}

KernelTable::Node* KernelTable::find_in(const Slots& slots, const Request& request, uint64_t hash) {
    for (size_t i = hash & slots.mask;; i = (i + 1) & slots.mask) {
        Node* node = slots.nodes[i].load(std::memory_order_acquire);
        if (node == nullptr || (node->hash == hash && node->request == request)) return node;
    }
}

const Kernel* KernelTable::find(const Request& request) const {
    const Slots& slots = *current_.load(std::memory_order_acquire);
    const Node* node = find_in(slots, request, memory_hash(request));
    return node == nullptr ? nullptr : node->kernel.load(std::memory_order_acquire);
}

void KernelTable::add(const Request& request, const Kernel& kernel) {
    const std::lock_guard lock(writers_);
    const uint64_t hash = memory_hash(request);
    if (find_in(*all_slots_.back(), request, hash) == nullptr) insert(request, hash, kernel);
}

void KernelTable::replace(const Request& request, const Kernel& kernel) {
    const std::lock_guard lock(writers_);
    const uint64_t hash = memory_hash(request);
    if (Node* node = find_in(*all_slots_.back(), request, hash)) {
        node->kernel.store(&kernels_.emplace_back(kernel), std::memory_order_release);
    } else {
        insert(request, hash, kernel);
    }
}

void KernelTable::insert(const Request& request, uint64_t hash, const Kernel& kernel) {
    if (2 * (nodes_.size() + 1) > all_slots_.back()->nodes.size()) grow();
    insert_in(*all_slots_.back(), nodes_.emplace_back(request, hash, &kernels_.emplace_back(kernel)));
}

void KernelTable::insert_in(Slots& slots, Node& node) {
    size_t i = node.hash & slots.mask;
    while (slots.nodes[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & slots.mask;
    slots.nodes[i].store(&node, std::memory_order_release);
}

void KernelTable::grow() {
    auto larger = std::make_unique<Slots>(2 * all_slots_.back()->nodes.size());
    for (Node& node : nodes_) insert_in(*larger, node);
    current_.store(larger.get(), std::memory_order_release);
    all_slots_.push_back(std::move(larger));
}

size_t KernelTable::size() const {
    const std::lock_guard lock(writers_);
    return nodes_.size();
}

}  // namespace normjit::cache
