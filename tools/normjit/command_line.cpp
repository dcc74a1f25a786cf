// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <cstdint>
#include <sstream>

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace normjit::cli {
namespace {

/// The command that the user got wrong, or nothing.
std::string wrong_command(const CLI::App& program, int argc, char** argv) {
    const std::string given = argc < 2 || argv[1][0] == '-' ? "" : argv[1];
    std::string allowed;
    for (const CLI::App* command : program.get_subcommands({})) {
        if (command->get_name() == given) return {};
        allowed += " " + command->get_name();
    }
    return fmt::format("{}; allowed:{} (see {} --help)",
                       given.empty() ? "no command" : fmt::format("unknown command '{}'", given), allowed,
                       program.get_name());
}

}  // namespace

CommandLine CommandLine::add_command(const char* name, const char* help) const {
    return CommandLine(*app_->add_subcommand(name, help));
}

void CommandLine::require_command() const { app_->require_subcommand(1); }

void CommandLine::take_options_of_outer() const { app_->fallthrough(); }

void CommandLine::set_footer(const char* text) const { app_->footer(text); }

template <typename Value>
void CommandLine::add_option(const char* names, Value& value, const char* help,
                             const std::type_identity_t<OptionRules<Value>>& rules) const {
    CLI::Option* option = app_->add_option(names, value, help);
    if constexpr (std::is_arithmetic_v<Value>) {
        if (rules.range) option->check(CLI::Range(rules.range->first, rules.range->second));
    }
    if (rules.show_default) option->capture_default_str();
    if (rules.delimiter != '\0') option->delimiter(rules.delimiter);
    if (!rules.excludes.empty()) option->excludes(rules.excludes);
    option->required(rules.required);
}

template <typename Value>
using Rules = OptionRules<Value>;
using Strings = std::vector<std::string>;
template void CommandLine::add_option(const char*, std::string&, const char*, const Rules<std::string>&) const;
template void CommandLine::add_option(const char*, Strings&, const char*, const Rules<Strings>&) const;
template void CommandLine::add_option(const char*, int&, const char*, const Rules<int>&) const;
template void CommandLine::add_option(const char*, int64_t&, const char*, const Rules<int64_t>&) const;
template void CommandLine::add_option(const char*, uint64_t&, const char*, const Rules<uint64_t>&) const;
template void CommandLine::add_option(const char*, double&, const char*, const Rules<double>&) const;

void CommandLine::add_flag(const char* names, bool& value, const char* help) const {
    app_->add_flag(names, value, help);
}

void CommandLine::add_choice(const char* names, const std::vector<std::string>& allowed,
                             std::function<void(const std::string&)> choose, const char* help) const {
    app_->add_option_function<std::string>(names, choose, help)->check(CLI::IsMember(allowed));
}

bool CommandLine::was_given() const { return app_->parsed(); }

ProgramLine::ProgramLine(const char* name, const char* version, const char* what, const char* footer)
    : app_(std::make_unique<CLI::App>(what, name)) {
    app_->footer(footer);
    app_->set_version_flag("--version", version);
    app_->require_subcommand(1);
}

ProgramLine::~ProgramLine() = default;

CommandLine ProgramLine::commands() const { return CommandLine(*app_); }

ProgramLine::Parsed ProgramLine::parse(int argc, char** argv) {
    try {
        app_->parse(argc, argv);
        return {Outcome::run, ""};
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
            std::ostringstream asked;  // --help or --version
            app_->exit(error, asked, asked);
            return {Outcome::asked_for_text, asked.str()};
        }
        const std::string wrong = wrong_command(*app_, argc, argv);
        return {Outcome::wrong,
                wrong.empty() ? fmt::format("{} (see {} {} --help)", error.what(), app_->get_name(), argv[1]) : wrong};
    }
}

}  // namespace normjit::cli
