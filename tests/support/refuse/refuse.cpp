// SPDX-License-Identifier: Apache-2.0
// Imitates a system that allows less, for programs that are started with this library in LD_PRELOAD:
//   REFUSE_CODE=E     no memory may be made executable, as under SELinux without execmem or MemoryDenyWriteExecute;
//                     the error is number E, as a filter of system calls may give any
//   REFUSE_AFFINITY=1 the processors of a thread cannot be asked for
//   REFUSE_THREADS=N  no thread can be started after the first N, as in a control group that runs out of pids
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

namespace {

template <class Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Returns the number in a variable of the environment; 0 if there is none.
int number(const char* variable) {
    const char* text = std::getenv(variable);
    return text != nullptr ? std::atoi(text) : 0;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int mprotect(void* address, size_t bytes, int protection) noexcept {
    static const auto real = next<int (*)(void*, size_t, int)>("mprotect");
    const int error = number("REFUSE_CODE");
    if ((protection & PROT_EXEC) == 0 || error == 0) return real(address, bytes, protection);
    errno = error;
    return -1;
}

EXPORTED void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
    static const auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
    const int error = number("REFUSE_CODE");
    if ((protection & PROT_EXEC) == 0 || error == 0) return real(address, bytes, protection, flags, file, offset);
    errno = error;
    return MAP_FAILED;
}

EXPORTED int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t* set) noexcept {
    static const auto real = next<int (*)(pid_t, size_t, cpu_set_t*)>("sched_getaffinity");
    if (number("REFUSE_AFFINITY") == 0) return real(thread, bytes, set);
    errno = EPERM;
    return -1;
}

EXPORTED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                            void* context) noexcept {
    static const auto real =
        next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    static std::atomic<int> started{0};
    const char* most = std::getenv("REFUSE_THREADS");
    if (most != nullptr && started.fetch_add(1) >= std::atoi(most)) return EAGAIN;
    return real(thread, attributes, run, context);
}
