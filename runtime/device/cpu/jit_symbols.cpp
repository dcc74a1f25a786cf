// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/jit_symbols.h"

#include "fork_gate.h"

#include "normjit/kernel_name.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

// The interface: "JIT Compilation Interface" in the GDB manual. The names and layouts are fixed there.
extern "C" {

enum JitAction : uint32_t { jit_no_action, jit_register, jit_unregister };

struct JitCodeEntry {
    JitCodeEntry* next;
    JitCodeEntry* previous;
    const uint8_t* image;
    uint64_t image_bytes;
};

struct JitDescriptor {
    uint32_t version;
    uint32_t action;
    JitCodeEntry* relevant;
    JitCodeEntry* first;
};

/// A debugger stops here and reads the descriptor.
[[gnu::noinline]] void __jit_debug_register_code();
void __jit_debug_register_code() { __asm__ volatile("" ::: "memory"); }

extern JitDescriptor __jit_debug_descriptor;
JitDescriptor __jit_debug_descriptor = {1, jit_no_action, nullptr, nullptr};
}

namespace normjit::cpu {

namespace {

std::mutex descriptor_mutex;

void lock_descriptor() { descriptor_mutex.lock(); }
void unlock_descriptor() { descriptor_mutex.unlock(); }
[[maybe_unused]] const bool forks_are_safe = lock_at_forks({lock_descriptor, unlock_descriptor, unlock_descriptor});

/// The parts of the image in their order.
struct Image {
    enum Section : uint16_t { none, text, symbols, strings, count };

    Elf64_Ehdr header{};
    Elf64_Shdr sections[count]{};
    std::vector<Elf64_Sym> symbol_table = {{}};
    std::string names = std::string("\0.text\0.symtab\0.strtab\0", 23);
    static constexpr uint32_t section_names[count] = {0, 1, 7, 15};

    uint32_t add_name(const std::string& name) {
        const auto at = static_cast<uint32_t>(names.size());
        names += name + '\0';
        return at;
    }
};

template <class T>
void append(std::vector<uint8_t>& bytes, const T* from, size_t count) {
    const size_t at = bytes.size();
    bytes.resize(at + count * sizeof(T));
    std::memcpy(bytes.data() + at, from, count * sizeof(T));
}

void fill_header(Elf64_Ehdr& header) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
#if defined(__x86_64__)
    header.e_machine = EM_X86_64;
#else
    header.e_machine = EM_AARCH64;
#endif
    header.e_version = EV_CURRENT;
    header.e_shoff = sizeof(Elf64_Ehdr);
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = Image::count;
    header.e_shstrndx = Image::strings;
}

}  // namespace

std::vector<JitSymbol> jit_symbols(const Artifact& artifact) {
    std::vector<EntryPoint> entries = artifact.entries;
    std::ranges::sort(entries, {}, &EntryPoint::offset);
    std::vector<JitSymbol> symbols;
    for (size_t i = 0; i < entries.size(); ++i) {
        const int64_t end = i + 1 < entries.size() ? entries[i + 1].offset : static_cast<int64_t>(artifact.code.size());
        symbols.push_back({kernel_name(artifact.spec, entries[i].name), entries[i].offset, end - entries[i].offset});
    }
    return symbols;
}

void write_perf_map(const void* code, std::span<const JitSymbol> symbols) {
    std::string lines;
    for (const JitSymbol& symbol : symbols) {
        lines +=
            fmt::format("{:x} {:x} {}\n", reinterpret_cast<uintptr_t>(code) + static_cast<uintptr_t>(symbol.offset),
                        symbol.bytes, symbol.name);
    }
    const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
    // Not through a link that somebody else put there.
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = write(file, lines.data(), lines.size());
    close(file);
}

std::vector<uint8_t> symbol_image(const void* code, int64_t bytes, std::span<const JitSymbol> symbols) {
    Image image;
    for (const JitSymbol& symbol : symbols) {
        Elf64_Sym entry{};
        entry.st_name = image.add_name(symbol.name);
        entry.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
        entry.st_shndx = Image::text;
        entry.st_value = static_cast<uint64_t>(symbol.offset);
        entry.st_size = static_cast<uint64_t>(symbol.bytes);
        image.symbol_table.push_back(entry);
    }
    fill_header(image.header);
    for (uint16_t i = 0; i < Image::count; ++i) image.sections[i].sh_name = Image::section_names[i];
    Elf64_Shdr& text = image.sections[Image::text];
    text.sh_type = SHT_NOBITS;  // the code is where it is
    text.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    text.sh_addr = reinterpret_cast<uintptr_t>(code);
    text.sh_size = static_cast<uint64_t>(bytes);
    text.sh_addralign = 1;
    Elf64_Shdr& table = image.sections[Image::symbols];
    table.sh_type = SHT_SYMTAB;
    table.sh_offset = sizeof image.header + sizeof image.sections;
    table.sh_size = image.symbol_table.size() * sizeof(Elf64_Sym);
    table.sh_link = Image::strings;
    table.sh_info = 1;  // the first global symbol
    table.sh_addralign = 8;
    table.sh_entsize = sizeof(Elf64_Sym);
    Elf64_Shdr& strings = image.sections[Image::strings];
    strings.sh_type = SHT_STRTAB;
    strings.sh_offset = table.sh_offset + table.sh_size;
    strings.sh_size = image.names.size();
    strings.sh_addralign = 1;

    std::vector<uint8_t> made;
    append(made, &image.header, 1);
    append(made, image.sections, Image::count);
    append(made, image.symbol_table.data(), image.symbol_table.size());
    append(made, image.names.data(), image.names.size());
    return made;
}

struct DebuggerEntry::Entry {
    std::vector<uint8_t> image;
    JitCodeEntry link{};
};

DebuggerEntry::DebuggerEntry(const void* code, int64_t bytes, std::span<const JitSymbol> symbols)
    : entry_(std::make_unique<Entry>()) {
    entry_->image = symbol_image(code, bytes, symbols);
    JitCodeEntry& link = entry_->link;
    link.image = entry_->image.data();
    link.image_bytes = entry_->image.size();
    const std::lock_guard lock(descriptor_mutex);
    link.next = __jit_debug_descriptor.first;
    if (link.next != nullptr) link.next->previous = &link;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = &link;
    __jit_debug_descriptor.action = jit_register;
    __jit_debug_register_code();
}

DebuggerEntry::~DebuggerEntry() {
    JitCodeEntry& link = entry_->link;
    const std::lock_guard lock(descriptor_mutex);
    (link.previous != nullptr ? link.previous->next : __jit_debug_descriptor.first) = link.next;
    if (link.next != nullptr) link.next->previous = link.previous;
    __jit_debug_descriptor.relevant = &link;
    __jit_debug_descriptor.action = jit_unregister;
    __jit_debug_register_code();
}

}  // namespace normjit::cpu
