// SPDX-License-Identifier: Apache-2.0
#include "system/file_io.h"

#include "support/try.h"
#include "system/no_cancellation.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

namespace normjit {

namespace {

std::string cannot(const std::string& path, const char* what) {
    return fmt::format("{}: cannot be {}: {}", path, what, std::strerror(errno));
}

std::string folder_of(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// Flushes a folder; without this a rename may not be on the disk yet. If a file system cannot flush folders, the file
/// is complete anyway.
void flush_folder(int at, const std::string& name) {
    const Descriptor folder(openat(at, folder_of(name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.is_open()) fsync(folder.get());
}

/// Returns bits that differ in every process and at every call. Process ids would not do: in many containers the id is
/// 1.
uint64_t random_bits() {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) == sizeof bits) return bits;
    static std::atomic<uint64_t> count = 0;
    return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
           static_cast<uint64_t>(getpid()) << 40 ^ ++count;
}

/// Turns a write beyond the file size limit of the process, or to a pipe that nobody reads any more, into an error.
/// Otherwise such a write would end the process.
class NoWriteSignals {
  public:
    NoWriteSignals() {
        sigset_t pending;
        sigemptyset(&pending);
        sigpending(&pending);
        sigemptyset(&signals_);
        for (const int each : {SIGXFSZ, SIGPIPE}) {
            if (sigismember(&pending, each) == 0) sigaddset(&signals_, each);  // a pending one is blocked, and not ours
        }
        is_blocked_ = pthread_sigmask(SIG_BLOCK, &signals_, &before_) == 0;
    }
    ~NoWriteSignals() {
        if (!is_blocked_) return;
        const int error = errno;
        const struct timespec at_once{};
        while (sigtimedwait(&signals_, nullptr, &at_once) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    NoWriteSignals(const NoWriteSignals&) = delete;
    NoWriteSignals& operator=(const NoWriteSignals&) = delete;

  private:
    sigset_t signals_, before_;
    bool is_blocked_ = false;
};

/// Follows the symbolic links of a path to their target, even if the target does not exist yet.
std::string end_of_links(const std::string& path) {
    constexpr int most = 40;  // the limit in Linux
    std::filesystem::path end = path;
    std::error_code error;
    for (int i = 0; i < most && std::filesystem::is_symlink(end, error); ++i) {
        const std::filesystem::path next = std::filesystem::read_symlink(end, error);
        if (error) return path;
        end = end.parent_path() / next;
    }
    return end;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

Descriptor::~Descriptor() {
    const NoCancellation goes_on;  // a destructor must not be left by a cancellation, and close() allows one
    if (number_ >= 0) close(number_);
}

Expected<RegularFile> open_regular(int folder, const std::string& name, int flags) {
    RegularFile file{Descriptor(openat(folder, name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags)), {}};
    if (!file.descriptor.is_open() && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
        return invalid_argument("is a symbolic link, and links are not followed here");
    if (!file.descriptor.is_open() || fstat(file.descriptor.get(), &file.facts) != 0)
        return invalid_argument(std::strerror(errno));
    if (!S_ISREG(file.facts.st_mode)) return invalid_argument("is not a regular file");
    return file;
}

Expected<std::string> read_regular(const std::string& path) {
    constexpr int64_t most_bytes = 64 << 20;
    NORMJIT_TRY(const RegularFile file, open_regular(AT_FDCWD, path));
    if (file.facts.st_size > most_bytes) return unavailable(fmt::format("has more than {} bytes", most_bytes));
    return read_at(file.descriptor, 0, file.facts.st_size);
}

Expected<std::string> read_at(const Descriptor& file, int64_t offset, int64_t count) {
    std::string bytes(static_cast<size_t>(count), '\0');
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t got = pread(file.get(), bytes.data() + done, bytes.size() - done,
                                  static_cast<off_t>(offset) + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return invalid_argument(fmt::format("cannot be read: {}", std::strerror(errno)));
        if (got == 0) return invalid_argument("is cut off");
        done += static_cast<size_t>(got);
    }
    return bytes;
}

Expected<std::string> read_file(const std::string& path, size_t limit) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) return invalid_argument(cannot(path, "opened"));
    std::string text;
    char buffer[1 << 16];
    while (text.size() <= limit) {
        const ssize_t got = read(file.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return invalid_argument(cannot(path, "read"));
        if (got == 0) return text;
        text.append(buffer, static_cast<size_t>(got));
    }
    return invalid_argument(fmt::format("{}: has more than {} bytes", path, limit));
}

Expected<LineFile> LineFile::open(const std::string& path, int flags) {
    Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666));
    if (!descriptor.is_open()) return invalid_argument(std::strerror(errno));
    bool is_cut = false;
    const auto before = open_regular(AT_FDCWD, path);
    if (before.ok() && before->facts.st_size > 0) {
        const auto last = read_at(before->descriptor, before->facts.st_size - 1, 1);
        is_cut = last.ok() && *last != "\n";
    }
    return LineFile(std::move(descriptor), is_cut);
}

Status LineFile::add(std::string_view line) {
    const NoWriteSignals guard;
    const std::string text = fmt::format("{}{}\n", is_cut_ ? "\n" : "", line);
    ssize_t written = -1;
    do {
        written = ::write(descriptor_.get(), text.data(), text.size());
    } while (written < 0 && errno == EINTR);
    if (written == static_cast<ssize_t>(text.size())) {
        is_cut_ = false;
        return {};
    }
    is_cut_ = is_cut_ || written > 0;
    return failed(written < 0 ? std::strerror(errno) : "the disk is full");
}

Expected<OutputFile> OutputFile::create(const std::string& path) {
    struct stat existing{};
    bool exists = stat(path.c_str(), &existing) == 0;
    if (exists && S_ISDIR(existing.st_mode)) return invalid_argument(path + ": cannot be written: it is a folder");
    if (!exists || S_ISREG(existing.st_mode)) return create_in(AT_FDCWD, end_of_links(path), path, 0666);
    Descriptor descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!descriptor.is_open()) return invalid_argument(cannot(path, "written"));
    return OutputFile(path, AT_FDCWD, path, "", std::move(descriptor));
}

Expected<OutputFile> OutputFile::create_in(int folder, const std::string& name, const std::string& path,
                                           mode_t rights) {
    constexpr int attempts = 3;
    for (int attempt = 1;; ++attempt) {
        std::string temporary = fmt::format("{}.{:016x}{}", name, random_bits(), temporary_end);
        Descriptor descriptor(openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, rights));
        if (descriptor.is_open()) return OutputFile(path, folder, name, std::move(temporary), std::move(descriptor));
        if (errno != EEXIST || attempt == attempts) return invalid_argument(cannot(path, "written"));
    }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(other.folder_),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::move(other.descriptor_)) {}

OutputFile::~OutputFile() {
    if (!temporary_.empty()) unlinkat(folder_, temporary_.c_str(), 0);
}

Status OutputFile::write(const void* data, size_t bytes) {
    const NoWriteSignals guard;
    auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
        ssize_t written = ::write(descriptor_.get(), next, std::min(bytes, size_t{1} << 30));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return failed(cannot(path_, "written"));
        next += written;
        bytes -= static_cast<size_t>(written);
    }
    return {};
}

Status OutputFile::commit() {
    const bool flushed = temporary_.empty() || fsync(descriptor_.get()) == 0;
    if (!flushed || close(descriptor_.release()) != 0) return failed(cannot(path_, "written"));
    if (temporary_.empty()) return {};
    if (renameat(folder_, temporary_.c_str(), folder_, name_.c_str()) != 0) return failed(cannot(path_, "written"));
    temporary_.clear();
    flush_folder(folder_, name_);
    return {};
}

}  // namespace normjit
