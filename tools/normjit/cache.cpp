// SPDX-License-Identifier: Apache-2.0
// normjit cache: manages compiled kernels on disk, and packs of them.
#include "cache/folder.h"
#include "cache/pack.h"
#include "command_line/command.h"
#include "command_line/console.h"
#include "command_line/device.h"
#include "command_line/files.h"
#include "command_line/shapes.h"
#include "support/text.h"
#include "support/try.h"
#include "system/environment.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

using cache::Folder;
using cache::Pack;
using nlohmann::ordered_json;

constexpr const char* cache_examples = R"(Examples:
  normjit cache list
  normjit cache list product.pack
  normjit cache verify product.pack
  normjit cache gc --size 256M
  NORMJIT_CAPTURE=specs.txt my_program && normjit cache fill specs.txt --device cuda:0 --dir /tmp/warm
  normjit cache pack --dir /tmp/warm -o product.pack

A product ships the pack, and names it in EngineOptions or NORMJIT_CACHE_PACKS. It can forbid compiling: OnMiss::load.
A kernel is found on devices of the target that `list` shows, with the schedule that the program asks for or chooses.)";

struct CacheOptions {
    std::string folder;
    std::string size;
    std::string output;
    std::vector<std::string> packs;
    std::vector<std::string> specs;
    DeviceOptions device;
    bool json = false;
};

/// Something that holds an artifact, or should hold one.
struct Item {
    std::string path;  ///< the path of the file; for a pack, with the place of the entry
    int64_t bytes = 0;
    double idle_seconds = -1;  ///< time since its last use; unknown in packs
    Expected<Artifact> artifact;
};

struct Cache {
    Folder folder;
    int64_t most_bytes;
    std::vector<Item> items;

    int64_t bytes() const {
        int64_t sum = 0;
        for (const Item& item : items) sum += item.bytes;
        return sum;
    }
    int64_t damaged() const {
        return std::ranges::count_if(items, [](const Item& item) { return !item.artifact.ok(); });
    }
};

Expected<Cache> open_cache(const CacheOptions& options) {
    NORMJIT_TRY(const Environment variables, environment());
    const auto bytes = options.size.empty() ? Expected<int64_t>(variables.cache_bytes) : parse_bytes(options.size);
    if (!bytes) return invalid_argument(fmt::format("--size {}: {}", options.size, bytes.status().message()));
    const std::string path = options.folder.empty() ? variables.cache_folder : options.folder;
    if (path.empty()) return invalid_argument("cache: there is no folder: give --dir, or set NORMJIT_CACHE_DIR");
    Cache cache{Folder(path, variables.cache_trust_others), *bytes, {}};
    NORMJIT_TRY(const auto files, cache.folder.files());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    for (const Folder::File& file : files) {
        const std::chrono::duration<double> idle = now - std::chrono::nanoseconds(file.used);
        auto artifact = cache.folder.read(file);
        if (!artifact.ok() && !cache.folder.has(file)) continue;  // another process has removed it meanwhile
        cache.items.push_back({cache.folder.path_of(file), file.bytes, idle.count(), std::move(artifact)});
    }
    return cache;
}

ordered_json to_json(const Item& item) {
    ordered_json json = {{"path", item.path}, {"bytes", item.bytes}};
    if (item.idle_seconds >= 0) json["idle_seconds"] = item.idle_seconds;
    if (!item.artifact.ok()) {
        json["error"] = item.artifact.status().message();
        return json;
    }
    const Artifact& artifact = *item.artifact;
    json["spec"] = to_text(artifact.spec);
    json["schedule"] = to_text(artifact.schedule);
    json["target"] = to_text(artifact.target);
    json["maker"] = artifact.maker;
    return json;
}

std::string summary(const Cache& cache) {
    return fmt::format("{}, {} of at most {}, in {}\n", counted(std::ssize(cache.items), "kernel"),
                       format_bytes(double(cache.bytes())), format_bytes(double(cache.most_bytes)),
                       cache.folder.path());
}

Expected<std::vector<Item>> items_of_packs(const std::vector<std::string>& paths) {
    std::vector<Item> items;
    for (const std::string& path : paths) {
        NORMJIT_TRY(const Pack pack, Pack::open(path));
        pack.for_each([&](const std::string& id, int64_t bytes, const Expected<Artifact>& artifact) {
            items.push_back({path + ":" + id, bytes, -1, artifact});
        });
    }
    return items;
}

Status list(const CacheOptions& options) {
    ordered_json json = ordered_json::object();
    std::string total;
    std::vector<Item> items;
    if (options.packs.empty()) {
        NORMJIT_TRY(Cache cache, open_cache(options));
        json = {{"folder", cache.folder.path()}, {"bytes", cache.bytes()}, {"most_bytes", cache.most_bytes}};
        total = summary(cache);
        items = std::move(cache.items);
    } else {
        NORMJIT_TRY(items, items_of_packs(options.packs));
        total = counted(std::ssize(items), "kernel") + "\n";
    }
    if (options.json) {
        json["entries"] = ordered_json::array();
        for (const Item& item : items) json["entries"].push_back(to_json(item));
        return write_json("", json);
    }
    Table table({"spec", "target", "maker", ">size", ">last use"});
    for (const Item& item : items) {
        const std::string size = format_bytes(double(item.bytes));
        const std::string idle = item.idle_seconds < 0 ? "-" : format_seconds(item.idle_seconds) + " ago";
        if (item.artifact.ok()) {
            const Artifact& artifact = *item.artifact;
            table.add({to_text(artifact.spec), to_text(artifact.target), artifact.maker, size, idle});
        } else {
            table.add({text::one_line(item.path), text::one_line(item.artifact.status().message()), "-", size, idle});
        }
    }
    return write_text("", (items.empty() ? "" : table.text() + "\n") + total);
}

Expected<std::vector<Item>> items_to_verify(const CacheOptions& options) {
    if (!options.packs.empty()) return items_of_packs(options.packs);
    NORMJIT_TRY(Cache cache, open_cache(options));
    return std::move(cache.items);
}

Status verify(const CacheOptions& options) {
    NORMJIT_TRY(const std::vector<Item> items, items_to_verify(options));
    ordered_json damaged = ordered_json::array();
    for (const Item& item : items) {
        if (item.artifact.ok()) continue;
        damaged.push_back(to_json(item));
        if (!options.json) print_note(fmt::format("{}: {}", item.path, item.artifact.status().message()));
    }
    NORMJIT_RETURN_IF_ERROR(
        options.json
            ? write_json("", {{"entries", items.size()}, {"damaged", damaged}})
            : write_text("", fmt::format("{}, {} damaged\n", counted(std::ssize(items), "kernel"), damaged.size())));
    return damaged.empty() ? Status() : failed("cache: damaged: " + counted(std::ssize(damaged), "kernel"));
}

Status collect_garbage(const CacheOptions& options) {
    NORMJIT_TRY(const Cache cache, open_cache(options));
    NORMJIT_TRY(const auto files, cache.folder.files());
    Folder::Cleaned removed;
    for (const Folder::File& file : files) {
        if (!cache.folder.read(file).ok()) cache.folder.remove(file, removed);
    }
    const Folder::Cleaned cleaned = cache.folder.clean(cache.most_bytes);
    removed.files += cleaned.files;
    removed.bytes += cleaned.bytes;
    if (removed.refused.ok()) removed.refused = cleaned.refused;
    NORMJIT_TRY(const Cache left, open_cache(options));
    NORMJIT_RETURN_IF_ERROR(options.json
                                ? write_json("", {{"removed_files", removed.files},
                                                  {"removed_bytes", removed.bytes},
                                                  {"entries", left.items.size()},
                                                  {"bytes", left.bytes()}})
                                : write_text("", fmt::format("removed {}, {}\n{}", counted(removed.files, "file"),
                                                             format_bytes(double(removed.bytes)), summary(left))));
    return removed.refused;
}

Status fill(const CacheOptions& options) {
    NORMJIT_TRY(const std::vector<OpenSpec> specs, read_specs(options.specs));
    if (specs.empty())
        return invalid_argument("nothing to make: give a file of specs or a spec (see normjit cache fill --help)");
    DeviceOptions device = options.device;
    device.cache = {.packs = std::vector<std::string>(), .everything = true};
    if (!options.folder.empty()) device.cache.folder = options.folder;
    NORMJIT_TRY(const Engine engine, open_engine(device));
    std::vector<std::string> missing;
    for (const auto& [spec, rows, slices] : specs) {
        const auto kernel = engine.prepare(spec, {.expected_rows = rows, .expected_slices = slices});
        const Status& status = kernel.status();
        if (!status.ok()) return Status(status.code(), fmt::format("'{}': {}", to_text(spec), status.message()));
        missing.push_back(code_key(kernel->artifact()));
    }
    NORMJIT_TRY(const Cache cache, open_cache(options));
    for (const Item& item : cache.items) {
        if (item.artifact.ok()) std::erase(missing, code_key(*item.artifact));
    }
    NORMJIT_RETURN_IF_ERROR(options.json ? write_json("", {{"specs", specs.size()}, {"entries", cache.items.size()}})
                                         : write_text("", summary(cache)));
    if (missing.empty()) return {};
    return failed(fmt::format("cache: {} lacks {} of {}", cache.folder.path(), missing.size(),
                              counted(std::ssize(specs), "kernel")));
}

Status pack(const CacheOptions& options) {
    NORMJIT_TRY(const Cache cache, open_cache(options));
    std::vector<Artifact> artifacts;
    for (const Item& item : cache.items) {
        if (item.artifact.ok()) {
            artifacts.push_back(*item.artifact);
        } else {
            print_note(fmt::format("{}: {}; left out", item.path, item.artifact.status().message()));
        }
    }
    if (artifacts.empty()) return invalid_argument(fmt::format("cache: {} holds no kernels", cache.folder.path()));
    NORMJIT_RETURN_IF_ERROR(cache::write_pack(options.output, artifacts));
    NORMJIT_TRY(const Pack written, Pack::open(options.output));
    if (options.json) return write_json("", {{"path", options.output}, {"entries", written.size()}});
    return write_text("",
                      fmt::format("{}: {}\n", options.output, counted(static_cast<int64_t>(written.size()), "kernel")));
}

struct Action {
    CommandLine line;
    Status (*run)(const CacheOptions& options);
};

}  // namespace

Command add_cache(const CommandLine& program) {
    auto options = std::make_shared<CacheOptions>();
    const CommandLine line =
        program.add_command("cache", "Show, check, shrink, fill or pack the cache of compiled kernels");
    line.set_footer(cache_examples);
    line.require_command();
    line.add_option("--dir", options->folder,
                    "The folder [NORMJIT_CACHE_DIR, XDG_CACHE_HOME/normjit, ~/.cache/normjit]");
    line.add_flag("--json", options->json, "Print JSON");
    std::vector<Action> actions;
    const auto add = [&](const char* name, const char* what, Status (*run)(const CacheOptions&)) {
        const CommandLine action = line.add_command(name, what);
        action.take_options_of_outer();
        actions.push_back({action, run});
        return action;
    };
    add("list", "List the kernels, the last used first", list)
        .add_option("packs", options->packs, "Packs to list instead of the folder");
    add("verify", "Read every kernel; exit code 1 if one is damaged", verify)
        .add_option("packs", options->packs, "Packs to check instead of the folder");
    add("gc", "Remove damaged and leftover files, then the least recently used kernels", collect_garbage)
        .add_option("--size", options->size, "Bytes to keep, such as 512M or 2G [NORMJIT_CACHE_SIZE]");
    const CommandLine filling = add("fill", "Make the kernels of specs, as a program on the device would", fill);
    filling.add_option("specs", options->specs, "Files of specs, as NORMJIT_CAPTURE writes them, and specs");
    add_device_option(filling, options->device);
    add_threads_option(filling, options->device);
    add("pack", "Write all kernels of the folder into one file", pack)
        .add_option("-o,--output", options->output, "The pack", {.required = true});
    return {line, [options, actions] {
                for (const Action& action : actions) {
                    if (action.line.was_given()) return action.run(*options);
                }
                return invalid_argument("cache: no action");
            }};
}

}  // namespace normjit::cli
