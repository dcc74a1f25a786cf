// SPDX-License-Identifier: Apache-2.0
#include "warnings.h"

#include "system/fork_gate.h"

#include "normjit/log.h"

#include <deque>
#include <mutex>
#include <string>

namespace {

constexpr size_t most = 100;

std::mutex mutex;
// Never destroyed, because threads may log until the process has ended.
std::deque<std::string>& waiting = *new std::deque<std::string>;

}  // namespace

void normjit_python_log(void*, int32_t level, const char* message) try {
    if (level != static_cast<int32_t>(normjit::LogLevel::warning)) return;
    const normjit::ApiScope scope;
    const std::lock_guard lock(mutex);
    if (waiting.size() < most) waiting.emplace_back(message);
} catch (...) {
    return;  // memory has run out
}

int normjit_python_take_warning(char* buffer, size_t capacity) {
    const normjit::ApiScope scope;
    const std::lock_guard lock(mutex);
    if (waiting.empty() || capacity == 0) return 0;
    buffer[waiting.front().copy(buffer, capacity - 1)] = '\0';
    waiting.pop_front();
    return 1;
}
