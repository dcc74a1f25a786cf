// SPDX-License-Identifier: Apache-2.0
#include "crash_report.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

namespace normjit::test {

namespace {

char line_of_report[4096];

/// Prints the line and restores the default handler. The instruction then runs again and ends the program.
void print_and_die(int signal) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line_of_report, std::strlen(line_of_report));
    ::signal(signal, SIG_DFL);
}

void install(int signal, struct sigaction& before) {
    struct sigaction ours = {};
    ours.sa_handler = print_and_die;
    sigaction(signal, &ours, &before);
}

}  // namespace

CrashReport::CrashReport() {
    install(SIGSEGV, segv_);
    install(SIGBUS, bus_);
    install(SIGILL, ill_);
    install(SIGFPE, fpe_);
}

CrashReport::~CrashReport() {
    sigaction(SIGSEGV, &segv_, nullptr);
    sigaction(SIGBUS, &bus_, nullptr);
    sigaction(SIGILL, &ill_, nullptr);
    sigaction(SIGFPE, &fpe_, nullptr);
}

void CrashReport::show(const std::string& text) {
    const std::string line = "\ncrashed; replay: NORMJIT_TEST_CASE='" + text + "'\n";
    const size_t length = std::min(line.size(), sizeof line_of_report - 1);
    std::memcpy(line_of_report, line.data(), length);
    line_of_report[length] = 0;
}

}  // namespace normjit::test
