// SPDX-License-Identifier: Apache-2.0
// Errors are values: a Status, or an Expected<T> that holds either a T or the Status that says why there is none.
#pragma once

#if __cplusplus <= 201703L
#error "normjit's headers for C++ need C++20; normjit.h is for C and for older C++"
#endif

#include <cassert>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace normjit {

/// The library has this function only for its own layout of standard classes. A program with another layout, such as
/// that of _GLIBCXX_DEBUG, does not link.
void same_layout(std::index_sequence<sizeof(std::string), sizeof(std::vector<int>)>);
[[gnu::used]] static constexpr auto* needs_same_layout = same_layout;

enum class Code {
    ok,
    invalid_argument,  ///< the caller's input is wrong; the message names the input and what is allowed
    unavailable,       ///< this machine or build cannot do it (no such device, ISA or library)
    failed,            ///< an attempt failed (I/O, out of memory, a broken invariant)
    pending,           ///< the work is still being done; ask again
    capturing          ///< a graph is being captured, which forbids the work; ask again afterwards
};

/// Success, or a code with one line of text for people. Cheap to move; success allocates nothing.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

    bool ok() const { return code_ == Code::ok; }
    explicit operator bool() const { return ok(); }
    Code code() const { return code_; }
    const std::string& message() const { return message_; }

  private:
    Code code_ = Code::ok;
    std::string message_;
};

inline Status invalid_argument(std::string message) { return {Code::invalid_argument, std::move(message)}; }
inline Status unavailable(std::string message) { return {Code::unavailable, std::move(message)}; }
inline Status failed(std::string message) { return {Code::failed, std::move(message)}; }
inline Status pending(std::string message) { return {Code::pending, std::move(message)}; }
inline Status capturing(std::string message) { return {Code::capturing, std::move(message)}; }

/// A T, or the Status that says why there is none. To read the value of an error is a programming error (asserted).
template <class T>
class [[nodiscard]] Expected {
  public:
    Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Expected(Status error) : state_(std::in_place_index<1>, std::move(error)) { assert(!status().ok()); }

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    Status status() const { return ok() ? Status() : std::get<1>(state_); }

    T& operator*() & { return value(); }
    const T& operator*() const& { return const_cast<Expected*>(this)->value(); }
    T&& operator*() && { return std::move(value()); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &**this; }

  private:
    T& value() {
        assert(ok());
        return *std::get_if<0>(&state_);
    }
    std::variant<T, Status> state_;
};

}  // namespace normjit
