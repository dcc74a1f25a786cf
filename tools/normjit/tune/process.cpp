// SPDX-License-Identifier: Apache-2.0
#include "command_line/files.h"
#include "tune/worker.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace normjit::cli::tune {

Status Channel::send(const Json& message) const {
    const std::string line = line_of(message) + "\n";
    for (size_t sent = 0; sent < line.size();) {
        const ssize_t bytes = ::send(socket(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return unavailable(std::strerror(errno));
        sent += static_cast<size_t>(bytes);
    }
    return {};
}

Expected<Json> Channel::receive(Time deadline) {
    for (;;) {
        if (const size_t end = buffer_.find('\n'); end != buffer_.npos) {
            Json message = Json::parse(buffer_.substr(0, end), nullptr, false);
            buffer_.erase(0, end + 1);
            if (message.is_discarded()) return unavailable("sent an invalid message");
            return message;
        }
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd ready{socket(), POLLIN, 0};
        const int milliseconds =
            deadline == Time::max() ? -1 : static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
        const int events = ::poll(&ready, 1, milliseconds);
        if (events == 0) return failed("no answer in time");
        if (events < 0) continue;  // a signal has interrupted it
        char bytes[4096];
        const ssize_t count = ::read(socket(), bytes, sizeof bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return unavailable("has ended");
        buffer_.append(bytes, static_cast<size_t>(count));
    }
}

Json error_message(const Status& error) {
    return {{"error", error.message()}, {"code", static_cast<int>(error.code())}};
}

Status error_of(const Json& message) {
    return {static_cast<Code>(message["code"].get<int>()), message["error"].get<std::string>()};
}

Expected<Child> Child::start(const Main& main) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return failed(fmt::format("sockets for a process: {}", std::strerror(errno)));
    Descriptor ours(ends[0]), childs(ends[1]);
    std::fflush(nullptr);  // otherwise both processes would write the buffered output
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return failed(fmt::format("starting a process: {}", std::strerror(errno)));
    if (pid == 0) {
        ours = Descriptor();
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(0);
        {
            Channel channel(std::move(childs));
            main(channel);
        }
        ::_exit(0);  // skips cleaning up, which the parent does
    }
    Child child;
    child.pid_ = pid;
    child.channel_ = Channel(std::move(ours));
    return child;
}

Child& Child::operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(channel_, other.channel_);
    return *this;
}

std::string Child::kill() {
    if (pid_ <= 0) return "not started";
    int status = 0;
    // Waits a moment: if the child has just ended by itself, that is how it ended.
    for (int i = 0; i < 20 && ::waitpid(pid_, &status, WNOHANG) == 0; ++i) {
        if (i == 19) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, &status, 0);
        } else {
            ::usleep(500);
        }
    }
    pid_ = -1;
    channel_ = Channel();
    if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace normjit::cli::tune
