// SPDX-License-Identifier: Apache-2.0
// The key=value words of a spec before they make a spec: from a file's metadata, the command line and the tensors
// themselves, later ones over earlier ones.
#pragma once

#include "normjit/status.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normjit::cli {

class Words {
  public:
    /// Reads "norm=rmsnorm eps=1e-6" or "rmsnorm eps=1e-6". Errors do not say where the text came from.
    static Expected<Words> parse(std::string_view text);

    std::optional<std::string> find(std::string_view key) const;
    void set(std::string_view key, std::string value);
    void erase(std::string_view key);
    void override_with(const Words& others);

    /// As parse_spec() reads it: the norm, then the keys.
    std::string text() const;

  private:
    std::vector<std::pair<std::string, std::string>> words_;
};

}  // namespace normjit::cli
