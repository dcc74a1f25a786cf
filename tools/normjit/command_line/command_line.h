// SPDX-License-Identifier: Apache-2.0
// The options of the program and its commands. This is an interface to CLI11, whose headers are so expensive to compile
// that only one source includes them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace normjit::cli {

/// What an option requires in addition to a value of its type.
template <typename Value>
struct OptionRules {
    std::optional<std::pair<Value, Value>> range = {};  ///< the least and the most allowed value
    bool show_default = false;                          ///< shows the default in the help
    bool required = false;
    std::string excludes = {};  ///< the name of another option of the command
};

/// One command. A copy refers to the same command. Values are written when the command line is read, and must live
/// until then.
class CommandLine {
  public:
    explicit CommandLine(CLI::App& app) : app_(&app) {}

    CommandLine add_command(const char* name, const char* help) const;
    void require_command() const;
    void take_options_of_outer() const;  ///< Accepts the program's options after this command's name as well.
    void set_footer(const char* text) const;

    /// `names` is "word" for an argument without a name, or "-s,--long". Value is std::string, a vector of it, int,
    /// int64_t, uint64_t or double.
    template <typename Value>
    void add_option(const char* names, Value& value, const char* help,
                    const std::type_identity_t<OptionRules<Value>>& rules = {}) const;
    void add_flag(const char* names, bool& value, const char* help) const;
    void add_choice(const char* names, const std::vector<std::string>& allowed,
                    std::function<void(const std::string&)> choose, const char* help) const;

    bool was_given() const;

  private:
    CLI::App* app_;
};

/// The whole program.
class ProgramLine {
  public:
    ProgramLine(const char* name, const char* version, const char* what, const char* footer);
    ~ProgramLine();

    CommandLine commands() const;

    /// The message is the text of --help or --version, if that was requested, or the user's mistake.
    enum class Outcome { run, asked_for_text, wrong };
    struct Parsed {
        Outcome outcome;
        std::string message;
    };
    Parsed parse(int argc, char** argv);

  private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace normjit::cli
