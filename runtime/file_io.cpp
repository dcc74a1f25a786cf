// SPDX-License-Identifier: Apache-2.0
#include "file_io.h"

#include "support/try.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace normjit {

namespace {

Status cannot(const std::string& path, const char* what) {
    return invalid_argument(fmt::format("{}: cannot be {}: {}", path, what, std::strerror(errno)));
}

std::string folder_of(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// A rename is on the disk when its folder is. Not every file system can do that, and the file is complete without it.
void flush_folder(const std::string& path) {
    int folder = open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

}  // namespace

Expected<std::string> read_file(const std::string& path, size_t limit) {
    FILE* file = std::fopen(path.c_str(), "re");
    if (!file) return cannot(path, "opened");
    std::string text;
    char buffer[1 << 16];
    size_t bytes = 0;
    while (text.size() <= limit && (bytes = std::fread(buffer, 1, sizeof buffer, file)) > 0) {
        text.append(buffer, bytes);
    }
    const bool broken = std::ferror(file) != 0;
    const Status status = broken ? cannot(path, "read") : Status();
    std::fclose(file);
    if (broken) return status;
    if (text.size() > limit) return invalid_argument(fmt::format("{}: has more than {} bytes", path, limit));
    return text;
}

Expected<OutputFile> OutputFile::create(const std::string& path) {
    struct stat existing{};
    bool exists = stat(path.c_str(), &existing) == 0;
    if (exists && S_ISDIR(existing.st_mode)) return invalid_argument(path + ": cannot be written: it is a folder");
    if (exists && !S_ISREG(existing.st_mode)) {
        int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (descriptor < 0) return cannot(path, "written");
        return OutputFile(path, "", descriptor);
    }
    for (int attempt = 0;; ++attempt) {
        std::string temporary = fmt::format("{}.{}-{}{}", path, getpid(), attempt, temporary_end);
        int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) return OutputFile(path, temporary, descriptor);
        if (errno != EEXIST || attempt == 100) return cannot(path, "written");
    }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status OutputFile::write(const void* data, size_t bytes) {
    auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
        ssize_t written = ::write(descriptor_, next, std::min(bytes, size_t{1} << 30));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return cannot(path_, "written");
        next += written;
        bytes -= static_cast<size_t>(written);
    }
    return {};
}

Status OutputFile::commit() {
    bool flushed = temporary_.empty() || fsync(descriptor_) == 0;
    if (!flushed || close(std::exchange(descriptor_, -1)) != 0) return cannot(path_, "written");
    if (temporary_.empty()) return {};
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return cannot(path_, "written");
    temporary_.clear();
    flush_folder(path_);
    return {};
}

}  // namespace normjit
