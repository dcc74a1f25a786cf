// SPDX-License-Identifier: Apache-2.0
#include "command_line/command_line.h"

#include "support/text.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

namespace normjit::cli {
namespace {

/// Returns how the user calls a command: "normjit cache fill".
std::string path_of(const CLI::App& app) {
    const CLI::App* outer = app.get_parent();
    return outer == nullptr ? app.get_name() : path_of(*outer) + " " + app.get_name();
}

/// Returns what is wrong with a word that should name a command of `app`, or nothing if it does name one. That command
/// checks its own subcommand in turn.
std::string wrong_command(const CLI::App& app, const std::string& word) {
    std::string allowed;
    for (const CLI::App* command : app.get_subcommands({})) {
        allowed += " " + command->get_name();
        if (command->get_name() != word) continue;
        if (command->get_require_subcommand_min() == 0 || !command->get_subcommands().empty()) return {};
        const std::vector<std::string> rest = command->remaining();
        return wrong_command(*command, rest.empty() ? "" : rest.front());
    }
    return fmt::format("{}; allowed:{} (see {} --help)",
                       word.empty() ? "no command" : fmt::format("unknown command '{}'", word), allowed, path_of(app));
}

/// True for a whole number, even for one that is too large for any type.
bool is_whole(std::string_view word) {
    if (word.starts_with('-')) word.remove_prefix(1);
    return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Reads numbers as specs do. CLI11 would read 010 as 8, and would accept nan in any range and numbers that are too
/// large for a seed.
template <typename Value>
Expected<Value> read_number(const std::string& word, const OptionRules<Value>& rules) {
    const auto read = [&] {
        if constexpr (std::is_floating_point_v<Value>) {
            return text::parse_double(word);
        } else {
            using Limits = std::numeric_limits<Value>;
            constexpr auto most = static_cast<int64_t>(std::min<uint64_t>(Limits::max(), INT64_MAX));
            return text::parse_int(word, Limits::min(), most);
        }
    };
    const auto number = read();
    if (!number.ok() && !(rules.range && is_whole(word))) return number.status();
    const auto value = number.ok() ? static_cast<Value>(*number) : Value{};
    if (rules.range && (!number.ok() || value < rules.range->first || value > rules.range->second))
        return invalid_argument(fmt::format("must be {} to {}", rules.range->first, rules.range->second));
    return value;
}

/// Refuses a value for a flag, as in --check=maybe, unless it is one of CLI11's words.
std::string refuse_no_answer(const std::string& word) {
    bool answer = false;
    return CLI::detail::lexical_cast(word, answer) ? "" : text::shown(word) + ": must be true or false";
}

/// Refuses an empty word, which is what a script's unset variable leaves.
std::string refuse_empty(const std::string& word) { return word.empty() ? "must not be empty" : ""; }

bool takes_any_number(const CLI::Option& option) {
    return option.get_expected_max() >= CLI::detail::expected_max_vector_size;
}

/// Returns the command that read the words: "fill" for normjit cache fill.
const CLI::App& command_of_words(const CLI::App& app) {
    const auto given = app.get_subcommands();
    return given.empty() ? app : command_of_words(*given.front());
}

/// Returns the options of a command that have a name. An inner command may accept those of the outer one as well.
std::vector<const CLI::Option*> named_options(const CLI::App& app) {
    std::vector<const CLI::Option*> named;
    for (const CLI::Option* option : app.get_options()) {
        if (option->nonpositional()) named.push_back(option);
    }
    if (!app.get_fallthrough()) return named;
    for (const CLI::Option* option : named_options(*app.get_parent())) {
        if (app.get_option_no_throw(option->get_name()) == nullptr) named.push_back(option);
    }
    return named;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& words) {
    return text::did_you_mean(word, std::vector<std::string_view>(words.begin(), words.end()));
}

/// Says which word nobody expected, and what was probably meant.
std::string unexpected_word(const CLI::App& command, const std::string& word) {
    if (!word.starts_with('-')) return fmt::format("'{}' is not expected", text::shown(word));
    std::vector<std::string> names;
    for (const CLI::Option* option : named_options(command)) names.push_back(option->get_name());
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("unknown option '{}'{}", text::shown(name), did_you_mean(name, names));
}

/// Says what CLI11 found wrong. Its own words for some mistakes are hard to understand, and differ between versions.
std::string wrong_words(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
    const std::string words = error.what();
    const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
    if (kind == CLI::ExitCodes::ExtrasError) {
        const std::vector<std::string> extras = app.remaining(true);
        return extras.empty() ? words : unexpected_word(command, extras.front());
    }
    if (kind != CLI::ExitCodes::ArgumentMismatch) return words;
    const std::string name = words.substr(0, words.find(':'));
    const auto options = named_options(command);
    const auto option = std::ranges::find(options, name, [](const CLI::Option* each) { return each->get_name(); });
    if (option == options.end()) return words;
    return name +
           ((*option)->count() > 1 && !takes_any_number(**option) ? ": is given twice" : ": its value is missing");
}

/// Returns the names of an option, and what it takes.
std::string option_text(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    std::string text = names.empty() ? option.get_name(true) : fmt::format("{}", fmt::join(names, ","));
    if (option.get_type_size() != 0) {
        if (!option.get_type_name().empty()) text += " " + option.get_type_name();
        if (!option.get_default_str().empty()) text += "=" + option.get_default_str();
        if (takes_any_number(option)) text += " ...";
        if (option.get_required()) text += " REQUIRED";
    }
    if (option.get_excludes().empty()) return text;
    text += " Excludes:";
    for (const CLI::Option* other : option.get_excludes()) text += " " + other->get_name();
    return text;
}

/// Makes the text of --help. CLI11's own text has other line breaks and spaces in each version.
class Help final : public CLI::FormatterBase {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
        std::string usage, positionals, options, commands;
        for (const CLI::Option* option : named_options(*app))
            options += line(option_text(*option), option->get_description());
        for (const CLI::Option* option : app->get_options()) {
            if (option->nonpositional()) continue;
            positionals += line(option_text(*option), option->get_description());
            const std::string values = option->get_name(true) + (takes_any_number(*option) ? "..." : "");
            usage += option->get_required() ? " " + values : " [" + values + "]";
        }
        for (const CLI::App* command : app->get_subcommands({}))
            commands += line(command->get_name(), command->get_description());
        return fmt::format("{}\nUsage: {}{}{}{}\n{}{}{}\n{}\n", app->get_description(), name,
                           options.empty() ? "" : " [OPTIONS]", usage, commands.empty() ? "" : " SUBCOMMAND",
                           section("Positionals", positionals), section("Options", options),
                           section("Subcommands", commands), app->get_footer());
    }

  private:
    static std::string line(const std::string& what, const std::string& description) {
        constexpr size_t column = 28;
        if (what.size() < column) return fmt::format("  {:{}}{}\n", what, column, description);
        return fmt::format("  {}\n{:{}}{}\n", what, "", column + 2, description);
    }
    static std::string section(const char* title, const std::string& lines) {
        return lines.empty() ? "" : fmt::format("\n{}:\n{}", title, lines);
    }
};

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
    CLI::Option* option = nullptr;
    if constexpr (std::is_arithmetic_v<Value>) {
        const auto read = [names, &value, rules](const std::string& word) {
            const auto number = read_number(word, rules);
            if (!number.ok()) throw CLI::ValidationError(names, text::shown(word) + ": " + number.status().message());
            value = *number;
        };
        option = app_->add_option_function<std::string>(names, read, help);
        const std::string type = std::is_integral_v<Value> ? "INT" : "FLOAT";
        option->type_name(rules.range ? fmt::format("{} from {} to {}", type, rules.range->first, rules.range->second)
                                      : type);
        if (rules.show_default) option->default_str(fmt::format("{}", value));
    } else {
        option = app_->add_option(names, value, help)->check(refuse_empty);
        if (rules.show_default) option->capture_default_str();
    }
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
    app_->add_flag(names, value, help)->check(refuse_no_answer);
}

void CommandLine::add_choice(const char* names, const std::vector<std::string>& allowed,
                             std::function<void(const std::string&)> choose, const char* help) const {
    const auto refuse_other = [allowed](const std::string& word) {
        if (std::ranges::find(allowed, word) != allowed.end()) return std::string();
        return fmt::format("{}: allowed: {}{}", text::shown(word), fmt::join(allowed, " "),
                           did_you_mean(word, allowed));
    };
    app_->add_option_function<std::string>(names, choose, help)
        ->check(refuse_other)
        ->type_name(fmt::format("TEXT:{{{}}}", fmt::join(allowed, ",")));
}

bool CommandLine::was_given() const { return app_->parsed(); }

ProgramLine::ProgramLine(const char* name, const char* version, const char* what, const char* footer)
    : app_(std::make_unique<CLI::App>(what, name)) {
    app_->formatter(std::make_shared<Help>());  // its commands inherit it
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
            std::ostringstream asked;  // this is the case for --help and --version
            app_->exit(error, asked, asked);
            return {Outcome::asked_for_text, asked.str()};
        }
        const CLI::App& command = command_of_words(*app_);
        const std::string wrong = wrong_command(*app_, argc < 2 ? "" : argv[1]);
        if (!wrong.empty()) return {Outcome::wrong, wrong};
        return {Outcome::wrong,
                fmt::format("{} (see {} --help)", wrong_words(*app_, command, error), path_of(command))};
    }
}

}  // namespace normjit::cli
