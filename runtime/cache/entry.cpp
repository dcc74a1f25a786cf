// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include "support/text.h"
#include "support/try.h"

#include "normjit/cuda_compiler.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::cache {

namespace {

constexpr std::string_view head = "normjit-kernel 1\n";

Status damaged(std::string_view what) { return invalid_argument(fmt::format("cache entry: {}", what)); }

/// Takes an entry apart from its front.
class Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) {}

    /// The rest of a line that starts with this word.
    Expected<std::string_view> line(std::string_view word) {
        const size_t end = rest_.find('\n');
        if (end == rest_.npos || !rest_.starts_with(word) || end <= word.size() || rest_[word.size()] != ' ') {
            return damaged(fmt::format("the line '{}' is missing", word));
        }
        const std::string_view value = rest_.substr(word.size() + 1, end - word.size() - 1);
        rest_.remove_prefix(end + 1);
        return value;
    }

    /// A line with a number, that many bytes, and the end of their line.
    Expected<std::string_view> block(std::string_view word) {
        NORMJIT_TRY(const std::string_view count, line(word));
        const auto bytes = text::parse_int(count, 0, static_cast<int64_t>(rest_.size()) - 1);
        if (!bytes || rest_[static_cast<size_t>(*bytes)] != '\n') {
            return damaged(fmt::format("'{}' does not say how long it is", word));
        }
        const std::string_view value = rest_.substr(0, static_cast<size_t>(*bytes));
        rest_.remove_prefix(value.size() + 1);
        return value;
    }

    std::string_view rest() const { return rest_; }

  private:
    std::string_view rest_;
};

Status check_sum(std::string_view text) {
    const size_t last = text.size() < 2 ? text.npos : text.rfind('\n', text.size() - 2);
    if (last == text.npos) return damaged("is cut off");
    const std::string_view body = text.substr(0, last + 1);
    if (text.substr(body.size()) == fmt::format("checksum {}\n", text::checksum(body))) return {};
    return damaged("the checksum does not match");
}

}  // namespace

std::string maker_of(const Artifact& artifact) {
    const bool outside = artifact.format == CodeFormat::cubin || artifact.format == CodeFormat::ptx;
    const auto nvrtc = outside ? cuda_compiler() : Expected<CudaCompiler>(CudaCompiler());
    if (!outside || !nvrtc.ok()) return std::string(no_maker);
    return fmt::format("nvrtc-{}.{}", nvrtc->major, nvrtc->minor);
}

std::string encode(const Entry& entry) {
    const std::string artifact = to_text(entry.artifact);
    std::string text = fmt::format("{}maker {}\nkey {}\n{}\nartifact {}\n{}\n", head, entry.maker, entry.key.size(),
                                   entry.key, artifact.size(), artifact);
    return text += fmt::format("checksum {}\n", text::checksum(text));
}

Expected<Entry> decode(std::string_view text) {
    if (!text.starts_with(head)) return damaged("is no entry of this version");
    NORMJIT_RETURN_IF_ERROR(check_sum(text));
    Reader reader(text.substr(head.size()));
    NORMJIT_TRY(const std::string_view maker, reader.line("maker"));
    NORMJIT_TRY(const std::string_view key, reader.block("key"));
    NORMJIT_TRY(const std::string_view line, reader.block("artifact"));
    NORMJIT_RETURN_IF_ERROR(reader.line("checksum").status());
    if (!reader.rest().empty()) return damaged("goes on after its end");
    NORMJIT_TRY(Artifact artifact, parse_artifact(line));
    return Entry{std::string(key), std::string(maker), std::move(artifact)};
}

std::string id_of(std::string_view key) { return text::checksum(key); }

}  // namespace normjit::cache
