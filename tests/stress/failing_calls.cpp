// SPDX-License-Identifier: Apache-2.0
#include "failing_calls.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace normjit::test {

namespace {

struct State {
    bool is_armed = false, is_reached = false;
    int64_t left = 0, calls = 0;
    FailingCall::How how = FailingCall::How::once;
    int error = 0;
    std::string name;
};
thread_local State state;

/// True if the call that is beginning must fail. Keeps the name of the first such call.
bool is_hit(const char* name) {
    if (!state.is_armed) return false;
    ++state.calls;
    if (state.left-- > 0) return false;
    if (!state.is_reached) state.name = name;
    state.is_reached = true;
    state.is_armed = state.how == FailingCall::How::from_on;
    return true;
}

/// True if the call fails. It succeeds if the fault is over or does not apply to it.
bool fails(const char* name) {
    if (!is_hit(name) || state.how == FailingCall::How::cut) return false;
    if (state.how == FailingCall::How::kill) raise(SIGKILL);
    errno = state.error;
    return true;
}

}  // namespace

FailingCall::FailingCall(int64_t count, How how, int error) {
    state = {.is_armed = true, .left = count, .how = how, .error = error, .name = {}};
}
FailingCall::~FailingCall() { state.is_armed = false; }
bool FailingCall::was_reached() { return state.is_reached; }
const std::string& FailingCall::name() { return state.name; }
int64_t FailingCall::calls() { return state.calls; }

}  // namespace normjit::test

using namespace normjit::test;

/// Defines call `name`: __real_name is the system's function, __wrap_name is the one that normjit calls. It returns
/// `failed` if it fails.
#define WRAP(result, name, parameters, arguments, failed) \
    extern "C" result __real_##name parameters;           \
    extern "C" result __wrap_##name parameters;           \
    result __wrap_##name parameters { return fails(#name) ? failed : __real_##name arguments; }

WRAP(int, faccessat, (int at, const char* path, int mode, int flags), (at, path, mode, flags), -1)
WRAP(DIR*, fdopendir, (int file), (file), nullptr)
WRAP(int, fstat, (int file, struct stat* facts), (file, facts), -1)
WRAP(int, futimens, (int file, const timespec* times), (file, times), -1)
WRAP(int, mkdir, (const char* path, mode_t mode), (path, mode), -1)
WRAP(int, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode), -1)
WRAP(void*, mmap, (void* at, size_t bytes, int protection, int flags, int file, off_t offset),
     (at, bytes, protection, flags, file, offset), MAP_FAILED)
WRAP(int, mprotect, (void* at, size_t bytes, int protection), (at, bytes, protection), -1)
WRAP(int, renameat, (int from_at, const char* from, int to_at, const char* to), (from_at, from, to_at, to), -1)

// Nothing here needs to survive a power failure, and flushing to disk takes milliseconds.
extern "C" int __wrap_fsync(int file);
int __wrap_fsync(int) { return fails("fsync") ? -1 : 0; }

// The file is closed even if close() reports an error.
extern "C" int __real_close(int file);
extern "C" int __wrap_close(int file);
int __wrap_close(int file) {
    const bool is_failing = fails("close");
    const int error = errno, result = __real_close(file);
    if (is_failing) errno = error;
    return is_failing ? -1 : result;
}

extern "C" int __real_open(const char* path, int flags, ...);
extern "C" int __wrap_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    return fails("open") ? -1 : __real_open(path, flags, mode);
}

extern "C" int __real_openat(int at, const char* path, int flags, ...);
extern "C" int __wrap_openat(int at, const char* path, int flags, ...);
int __wrap_openat(int at, const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    return fails("openat") ? -1 : __real_openat(at, path, flags, mode);
}

namespace {

/// Runs a read or write of `bytes` by `real`, which takes a number of bytes.
template <class Real>
ssize_t transfer(const char* name, size_t bytes, const Real& real) {
    if (!is_hit(name)) return real(bytes);
    if (state.how == FailingCall::How::cut) return real(std::min<size_t>(bytes, 1));
    if (state.how == FailingCall::How::kill) {
        static_cast<void>(real(bytes / 2));
        raise(SIGKILL);
    }
    errno = state.error;
    return -1;
}

}  // namespace

extern "C" ssize_t __real_write(int file, const void* data, size_t bytes);
extern "C" ssize_t __wrap_write(int file, const void* data, size_t bytes);
ssize_t __wrap_write(int file, const void* data, size_t bytes) {
    return transfer("write", bytes, [&](size_t count) { return __real_write(file, data, count); });
}

extern "C" ssize_t __real_read(int file, void* data, size_t bytes);
extern "C" ssize_t __wrap_read(int file, void* data, size_t bytes);
ssize_t __wrap_read(int file, void* data, size_t bytes) {
    return transfer("read", bytes, [&](size_t count) { return __real_read(file, data, count); });
}

extern "C" ssize_t __real_pread(int file, void* data, size_t bytes, off_t at);
extern "C" ssize_t __wrap_pread(int file, void* data, size_t bytes, off_t at);
ssize_t __wrap_pread(int file, void* data, size_t bytes, off_t at) {
    return transfer("pread", bytes, [&](size_t count) { return __real_pread(file, data, count, at); });
}
