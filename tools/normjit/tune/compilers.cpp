// SPDX-License-Identifier: Apache-2.0
#include "tune/compilers.h"

#include "support/try.h"

#include "normjit/compile.h"
#include "normjit/serialise.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace normjit::cli::tune {

/// A process, and the memory for its last artifact. It holds one artifact at a time, so it needs no lock.
struct Compilers::Process {
    Child child;
    Descriptor memory;
    std::string schedule;  ///< the schedule that it compiles; empty if it is free
    size_t problem = 0;

    bool is_free() const { return child.running() && schedule.empty(); }
};

namespace {

Expected<Artifact> compile(const Spec& spec, const std::string& schedule_text, const Target& target) {
    NORMJIT_TRY(const Schedule schedule, parse_schedule(schedule_text));
    return normjit::compile(spec, schedule, target);
}

Expected<std::string> compile(const Json& request) {
    NORMJIT_TRY(const Spec spec, parse_spec(request["spec"].get<std::string>()));
    NORMJIT_TRY(const Target target, parse_target(request["target"].get<std::string>()));
    NORMJIT_TRY(const Artifact artifact, compile(spec, request["schedule"].get<std::string>(), target));
    return serialise(artifact);
}

Status write_all(int file, const std::string& bytes) {
    for (size_t written = 0; written < bytes.size();) {
        const ssize_t count =
            ::pwrite(file, bytes.data() + written, bytes.size() - written, static_cast<off_t>(written));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return failed(std::strerror(errno));
        written += static_cast<size_t>(count);
    }
    return {};
}

Expected<std::string> read_all(int file, size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t read = 0; read < bytes;) {
        const ssize_t count = ::pread(file, text.data() + read, bytes - read, static_cast<off_t>(read));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return failed("an artifact is shorter than announced");
        read += static_cast<size_t>(count);
    }
    return text;
}

/// Works until its channel closes.
void serve_compiler(Channel& channel, int memory) {
    constexpr int less_urgent_than_timing = 10;
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, less_urgent_than_timing));
    for (;;) {
        const auto request = channel.receive(Channel::Time::max());
        if (!request.ok()) return;
        const auto bytes = compile(*request);
        const Status status = bytes.ok() ? write_all(memory, *bytes) : bytes.status();
        Json answer = {{"bytes", bytes.ok() ? bytes->size() : 0}};
        if (!status.ok()) answer = error_message(status);
        if (!channel.send(answer).ok()) return;
    }
}

}  // namespace

Compilers::Compilers() = default;
Compilers::Compilers(Compilers&&) noexcept = default;
Compilers& Compilers::operator=(Compilers&&) noexcept = default;
Compilers::~Compilers() = default;

size_t Compilers::usual_count(const std::string& device) {
    return device == "cpu" ? 0 : std::clamp(std::thread::hardware_concurrency(), 2u, 17u) - 1;
}

Expected<Compilers> Compilers::start(size_t count) {
    Compilers compilers;
    for (size_t i = 0; i < count; ++i) {
        auto process = std::make_unique<Process>();
        process->memory = Descriptor(::memfd_create("normjit artifact", MFD_CLOEXEC));
        if (!process->memory.is_open()) return failed(fmt::format("memory for an artifact: {}", std::strerror(errno)));
        const int memory = process->memory.get();
        NORMJIT_TRY(process->child, Child::start([memory](Channel& parent) { serve_compiler(parent, memory); }));
        compilers.processes_.push_back(std::move(process));
    }
    return compilers;
}

void Compilers::open(const Spec& spec, const Target& target) {
    spec_ = spec;
    target_ = target;
    ++problem_;
    waiting_.clear();
    made_.clear();
}

Compilers::Process* Compilers::process_of(const std::string& schedule) const {
    const auto found = std::ranges::find_if(
        processes_, [&](const auto& process) { return process->schedule == schedule && process->problem == problem_; });
    return found == processes_.end() ? nullptr : found->get();
}

void Compilers::ask(const std::string& schedule) {
    if (made_.contains(schedule) || process_of(schedule) != nullptr) return;
    if (std::ranges::find(waiting_, schedule) == waiting_.end()) waiting_.push_back(schedule);
}

void Compilers::receive(Process& process, Channel::Time deadline) {
    if (process.schedule.empty()) return;
    const auto answer = process.child.channel().receive(deadline);
    if (answer.status().code() == Code::failed) return;  // the answer has not arrived
    Expected<Artifact> artifact = failed("nothing was made");
    if (!answer.ok()) {
        artifact = failed(fmt::format("its compiler's process ended: {}", process.child.kill()));
    } else if (answer->contains("error")) {
        artifact = error_of(*answer);
    } else if (const auto bytes = read_all(process.memory.get(), (*answer)["bytes"]); bytes.ok()) {
        artifact = parse_artifact(*bytes);
    }
    if (process.problem == problem_) made_.insert_or_assign(process.schedule, std::move(artifact));
    process.schedule.clear();
}

void Compilers::step() {
    for (const auto& process : processes_) {
        receive(*process, std::chrono::steady_clock::now());
        if (waiting_.empty() || !process->is_free()) continue;
        const Json request = {{"spec", to_text(spec_)}, {"target", to_text(target_)}, {"schedule", waiting_.front()}};
        process->schedule = waiting_.front();
        process->problem = problem_;
        waiting_.pop_front();
        // A process that has ended is noticed when its answer is awaited.
        static_cast<void>(process->child.channel().send(request));
    }
}

Expected<Artifact> Compilers::take(const std::string& schedule) {
    if (processes_.empty()) return compile(spec_, schedule, target_);
    if (std::erase(waiting_, schedule) > 0 || (!made_.contains(schedule) && process_of(schedule) == nullptr))
        waiting_.push_front(schedule);
    for (step(); !made_.contains(schedule); step()) {
        if (are_gone()) return failed("all processes that compile have ended");
        // if all processes are busy with other schedules, nobody compiles it yet
        constexpr auto a_little = std::chrono::milliseconds(10);
        Process* process = process_of(schedule);
        for (size_t i = 0; process == nullptr && i < processes_.size(); ++i) {
            if (!processes_[i]->schedule.empty()) process = processes_[i].get();
        }
        if (process != nullptr) receive(*process, std::chrono::steady_clock::now() + a_little);
    }
    auto artifact = std::move(made_.extract(schedule).mapped());
    step();  // the process that made it is free again
    return artifact;
}

bool Compilers::are_gone() const {
    return !processes_.empty() &&
           std::ranges::none_of(processes_, [](const auto& process) { return process->child.running(); });
}

std::vector<pid_t> Compilers::processes() const {
    std::vector<pid_t> ids;
    for (const auto& process : processes_) ids.push_back(process->child.id());
    return ids;
}

}  // namespace normjit::cli::tune
