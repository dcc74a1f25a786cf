// SPDX-License-Identifier: Apache-2.0
// Implements the functions of normjit.h. They throw no exception.
#include "normjit/normjit.h"

#include "c_abi/convert.h"
#include "device/cpu/host_target.h"
#include "support/text.h"
#include "support/try.h"
#include "system/caught.h"
#include "system/fork_gate.h"

#include "normjit/serialise.h"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace normjit;
using namespace normjit::c_abi;

struct normjit_engine {
    std::unique_ptr<const normjit_log> log;  ///< receives the engine's log
    Engine engine;
};
struct normjit_kernel {
    Kernel kernel;
};
struct normjit_artifact {
    Artifact artifact;
};

namespace {

/// The message of a thread's last error. A short message allocates nothing, so a thread can report that memory has run
/// out. It registers no destructor either, which takes memory, and glibc ends the process if there is none. A longer
/// message needs both. After the thread's objects have been destroyed, in the program's own destructors and exit
/// handlers, it is cut off.
constinit thread_local char message_begin[512] = "";
constinit thread_local bool is_longer = false, longer_is_gone = false;
struct LongerMessage {
    std::string text;
    ~LongerMessage() { is_longer = false, longer_is_gone = true; }
};
thread_local LongerMessage longer_message;

normjit_status report(Code code, const char* message) noexcept {
    const auto length = std::snprintf(message_begin, sizeof message_begin, "%s", message);
    is_longer = false;
    if (length >= static_cast<int>(sizeof message_begin) && !longer_is_gone) {
        try {
            longer_message.text = message;
            is_longer = true;
        } catch (const std::bad_alloc&) {  // the start of the message remains
        }
    }
    return static_cast<normjit_status>(code);
}

/// An argument that must not be null.
struct Needed {
    const void* argument;
    const char* name;
};

/// Runs a function that returns a Status, unless one of its arguments is missing.
template <class Function>
normjit_status guarded(std::initializer_list<Needed> arguments, const Function& function) noexcept {
    const Status status = caught([&]() -> Status {
        for (const auto& [argument, name] : arguments) {
            if (argument == nullptr) return invalid_argument(fmt::format("{}: null pointer", name));
        }
        return function();
    });
    return status.ok() ? NORMJIT_OK : report(status.code(), status.message().c_str());
}

Status copy_out(std::string_view from, void* buffer, size_t capacity, size_t* bytes) {
    if (bytes != nullptr) *bytes = from.size();
    if (buffer == nullptr) return bytes != nullptr ? Status() : invalid_argument("bytes: null pointer");
    if (capacity < from.size()) {
        return invalid_argument(fmt::format("buffer: has {} bytes; {} are needed", capacity, from.size()));
    }
    std::memcpy(buffer, from.data(), from.size());
    return {};
}

/// Copies a text and the zero that ends it.
Status copy_text(const std::string& text, char* buffer, size_t capacity, size_t* bytes) {
    return copy_out({text.c_str(), text.size() + 1}, buffer, capacity, bytes);
}

Expected<Spec> valid_spec(const normjit_spec* given) {
    NORMJIT_TRY(Spec spec, to_cpp(given));
    NORMJIT_RETURN_IF_ERROR(validate(spec));
    return spec;
}

Expected<Schedule> schedule_for(const char* text, const Spec& spec, const Target& target) {
    if (text == nullptr) return heuristic(spec, target);
    return parse_schedule(text);
}

}  // namespace

int32_t normjit_version(void) { return NORMJIT_VERSION; }

const char* normjit_last_error(void) { return is_longer ? longer_message.text.c_str() : message_begin; }

const char* normjit_tensor_name(int32_t tensor) {
    const auto* found = std::ranges::find(tensor_table, tensor, &TensorInfo::number);
    return found == std::end(tensor_table) ? nullptr : found->name.data();
}

normjit_status normjit_spec_parse(const char* text, normjit_spec* spec) {
    return guarded({{text, "text"}}, [&]() -> Status {
        NORMJIT_TRY(const normjit_spec known, read_struct<normjit_spec>(spec, "spec"));
        NORMJIT_TRY(const Spec parsed, parse_spec(text));
        normjit_spec full = to_c(parsed);
        if (parsed.formula) {
            if (known.size < sizeof full)
                return invalid_argument("spec: size: this program was built with a normjit_spec that has no formulas");
            full.text = text;
        }
        write_struct(full, known, spec);
        return {};
    });
}

normjit_status normjit_formula_line(const char* formula, char* buffer, size_t capacity, size_t* bytes) {
    return guarded({{formula, "formula"}}, [&]() -> Status {
        NORMJIT_TRY(const std::string line, formula_line(formula));
        return copy_text(line, buffer, capacity, bytes);
    });
}

normjit_status normjit_formula_numbers(const char* formula, char* buffer, size_t capacity, size_t* bytes) {
    return guarded({{formula, "formula"}}, [&]() -> Status {
        NORMJIT_TRY(const auto numbers, formula_numbers(formula));
        return copy_text(fmt::format("{}", fmt::join(numbers, ",")), buffer, capacity, bytes);
    });
}

normjit_status normjit_formula_gradient(const char* text, const char* input, int32_t* gradient) {
    return guarded({{text, "text"}, {input, "input"}, {gradient, "gradient"}}, [&]() -> Status {
        NORMJIT_TRY(const GradientKind kind, gradient_kind(text, input));
        *gradient = static_cast<int32_t>(kind);
        return {};
    });
}

normjit_status normjit_spec_tensor(const normjit_spec* spec, const char* name, int32_t* tensor) {
    return guarded({{name, "name"}, {tensor, "tensor"}}, [&]() -> Status {
        NORMJIT_TRY(const Spec parsed, to_cpp(spec));
        const auto found = parsed.find(name);
        if (!found) return invalid_argument(fmt::format("spec: it has no tensor '{}'", text::shown(name)));
        *tensor = info(*found).number;
        return {};
    });
}

normjit_status normjit_spec_operands(const normjit_spec* spec, int32_t* count) {
    return guarded({{count, "count"}}, [&]() -> Status {
        NORMJIT_TRY(const Spec parsed, valid_spec(spec));
        *count = static_cast<int32_t>(OperandList(parsed).size());
        return {};
    });
}

normjit_status normjit_spec_operand(const normjit_spec* spec, int32_t place, normjit_operand* operand) {
    return guarded({}, [&]() -> Status {
        NORMJIT_TRY(const normjit_operand known, read_struct<normjit_operand>(operand, "operand"));
        NORMJIT_TRY(const Spec parsed, valid_spec(spec));
        const OperandList operands(parsed);
        if (place < 0 || static_cast<size_t>(place) >= operands.size())
            return invalid_argument(fmt::format("place: {}; the problem has {} tensors", place, operands.size()));
        write_struct(to_c(operands[static_cast<size_t>(place)], parsed.cols), known, operand);
        return {};
    });
}

normjit_status normjit_spec_text(const normjit_spec* spec, char* buffer, size_t capacity, size_t* bytes) {
    return guarded({}, [&]() -> Status {
        NORMJIT_TRY(const Spec given, valid_spec(spec));
        return copy_text(to_text(given), buffer, capacity, bytes);
    });
}

normjit_status normjit_engine_create(const normjit_engine_options* options, normjit_engine** engine) {
    return guarded({{engine, "engine"}}, [&]() -> Status {
        NORMJIT_TRY(const normjit_engine_options known, read_struct(options, "engine options", true));
        NORMJIT_TRY(EngineOptions complete, to_cpp(known));
        auto log = std::make_unique<normjit_log>(known.log);
        if (log->write != nullptr) {
            complete.log = {[](void* self, LogLevel level, const char* message) {
                                const auto& to = *static_cast<const normjit_log*>(self);
                                to.write(to.self, static_cast<int32_t>(level), message);
                            },
                            log.get()};
        }
        NORMJIT_TRY(Engine made, Engine::create(complete));
        *engine = new normjit_engine{std::move(log), std::move(made)};
        return {};
    });
}

void normjit_engine_destroy(normjit_engine* engine) { delete engine; }

normjit_status normjit_engine_backend(const normjit_engine* engine, char* buffer, size_t capacity, size_t* bytes) {
    return guarded({{engine, "engine"}}, [&]() -> Status {
        NORMJIT_TRY(const std::string backend, backend_of(engine->engine.target()));
        return copy_text(backend, buffer, capacity, bytes);
    });
}

normjit_status normjit_engine_threads(const normjit_engine* engine, int32_t* threads, char* buffer, size_t capacity,
                                      size_t* bytes) {
    return guarded({{engine, "engine"}}, [&]() -> Status {
        if (threads != nullptr) *threads = engine->engine.threads();
        return copy_text(engine->engine.whose_threads(), buffer, capacity, bytes);
    });
}

normjit_status normjit_plan_digest(const normjit_engine* engine, uint64_t* digest) {
    return guarded({{engine, "engine"}, {digest, "digest"}}, [&]() -> Status {
        *digest = engine->engine.plan_digest();
        return {};
    });
}

normjit_status normjit_prepare(normjit_engine* engine, const normjit_spec* spec, const normjit_prepare_options* options,
                               normjit_kernel** kernel) {
    return guarded({{engine, "engine"}, {kernel, "kernel"}}, [&]() -> Status {
        NORMJIT_TRY(const normjit_prepare_options known, read_struct(options, "prepare options", true));
        NORMJIT_TRY(const PrepareOptions how, to_cpp(known));
        NORMJIT_TRY(const Spec wanted, to_cpp(spec));
        if (known.schedule == nullptr) {
            NORMJIT_TRY(Kernel ready, engine->engine.prepare(wanted, how));
            *kernel = new normjit_kernel{std::move(ready)};
            return {};
        }
        NORMJIT_TRY(const Schedule schedule, parse_schedule(known.schedule));
        NORMJIT_TRY(Kernel ready, engine->engine.prepare(wanted, schedule, how));
        *kernel = new normjit_kernel{std::move(ready)};
        return {};
    });
}

normjit_status normjit_compile(const char* target, const normjit_spec* spec, const char* schedule,
                               normjit_artifact** artifact) {
    const ApiScope scope;
    return guarded({{target, "target"}, {artifact, "artifact"}}, [&]() -> Status {
        NORMJIT_TRY(const Target machine, cpu::target_of(target));
        NORMJIT_TRY(const Spec wanted, valid_spec(spec));
        NORMJIT_TRY(const Schedule how, schedule_for(schedule, wanted, machine));
        NORMJIT_TRY(Artifact made, compile(wanted, how, machine));
        *artifact = new normjit_artifact{std::move(made)};
        return {};
    });
}

normjit_status normjit_artifact_serialise(const normjit_artifact* artifact, void* buffer, size_t capacity,
                                          size_t* bytes) {
    return guarded({{artifact, "artifact"}},
                   [&]() -> Status { return copy_out(serialise(artifact->artifact), buffer, capacity, bytes); });
}

normjit_status normjit_artifact_deserialise(const void* data, size_t bytes, normjit_artifact** artifact) {
    return guarded({{data, "data"}, {artifact, "artifact"}}, [&]() -> Status {
        NORMJIT_TRY(Artifact read, parse_artifact({static_cast<const char*>(data), bytes}));
        *artifact = new normjit_artifact{std::move(read)};
        return {};
    });
}

void normjit_artifact_destroy(normjit_artifact* artifact) { delete artifact; }

normjit_status normjit_load(normjit_engine* engine, const normjit_artifact* artifact, void* stream,
                            normjit_kernel** kernel) {
    return guarded({{engine, "engine"}, {artifact, "artifact"}, {kernel, "kernel"}}, [&]() -> Status {
        NORMJIT_TRY(Kernel loaded, engine->engine.load(artifact->artifact, stream));
        *kernel = new normjit_kernel{std::move(loaded)};
        return {};
    });
}

normjit_status normjit_kernel_workspace_bytes(const normjit_kernel* kernel, int64_t rows, int64_t slices,
                                              int64_t* minimum, int64_t* preferred) {
    return guarded({{kernel, "kernel"}}, [&]() -> Status {
        const Batch batch(rows, to_slices(slices));
        if (batch.rows < 0) return invalid_argument(fmt::format("rows: {}; must be at least 0", rows));
        if (batch.slices < 0)
            return invalid_argument(fmt::format("slices: {}; must be at least 0, or NORMJIT_NO_SLICES", slices));
        if (minimum != nullptr) *minimum = kernel->kernel.minimum_workspace(batch.rows, batch.slices);
        if (preferred != nullptr) *preferred = kernel->kernel.preferred_workspace(batch.rows, batch.slices);
        return {};
    });
}

normjit_status normjit_kernel_workspace(const normjit_kernel* kernel, int64_t rows, int64_t* minimum,
                                        int64_t* preferred) {
    return normjit_kernel_workspace_bytes(kernel, rows, 1, minimum, preferred);
}

void normjit_kernel_destroy(normjit_kernel* kernel) { delete kernel; }

normjit_status normjit_set_dlpack(const normjit_kernel* kernel, normjit_arguments* arguments, normjit_tensor tensor,
                                  const void* dl_tensor) {
    return guarded({{kernel, "kernel"}}, [&]() -> Status {
        NORMJIT_TRY(const Tensor which, to_tensor(tensor));
        const Artifact& artifact = kernel->kernel.artifact();
        if (arguments != nullptr && arguments->size >= sizeof *arguments)  // avoids two copies
            return set_dlpack(artifact, *arguments, which, dl_tensor);
        NORMJIT_TRY(normjit_arguments full, read_struct(arguments, "arguments"));
        NORMJIT_RETURN_IF_ERROR(set_dlpack(artifact, full, which, dl_tensor));
        const std::span bytes(reinterpret_cast<const char*>(&full), sizeof full);
        if (std::ranges::any_of(bytes.subspan(full.size), [](char byte) { return byte != 0; }))
            return invalid_argument(
                "arguments: size: this program was built with a normjit_arguments that has no slices");
        std::memcpy(arguments, &full, full.size);
        return {};
    });
}

normjit_status normjit_launch(const normjit_kernel* kernel, const normjit_arguments* arguments) {
    return guarded({{kernel, "kernel"}}, [&]() -> Status {
        const auto launch = [&](const normjit_arguments& known) -> Status {
            NORMJIT_TRY(const Arguments complete, to_cpp(known, kernel->kernel.artifact().spec));
            return kernel->kernel.launch(complete);
        };
        if (arguments != nullptr && arguments->size == sizeof *arguments) return launch(*arguments);  // avoids a copy
        NORMJIT_TRY(const normjit_arguments known, read_struct(arguments, "arguments"));
        return launch(known);
    });
}
