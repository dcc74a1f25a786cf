// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/object.h"

#include "support/try.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELFObjectFile.h>

namespace normjit::backend::llvmir {

namespace {

using llvm::object::ELF64LEObjectFile;
using llvm::object::SectionRef;
namespace elf = llvm::ELF;

constexpr uint64_t no_place = UINT64_MAX;

template <class T>
Expected<T> value_of(llvm::Expected<T> expected) {
    if (expected) return std::move(*expected);
    return failed("llvm: object file: " + llvm::toString(expected.takeError()));
}

template <class T>
T read(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// Inserts the low `bits` bits of `value` at bit `at` of the instruction.
void patch(uint8_t* instruction, int64_t value, int at, int bits) {
    const uint32_t mask = ((uint32_t{1} << bits) - 1) << at;
    const uint32_t word = (read<uint32_t>(instruction) & ~mask) | (static_cast<uint32_t>(value) << at & mask);
    std::memcpy(instruction, &word, sizeof word);
}

bool fits(int64_t value, int bits) { return value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1); }

class Linker {
  public:
    explicit Linker(const ELF64LEObjectFile& object) : object_(object) {}

    Expected<LinkedCode> run() {
        for (const bool code : {true, false}) {
            for (const SectionRef& section : object_.sections()) NORMJIT_RETURN_IF_ERROR(place(section, code));
        }
        for (const SectionRef& section : object_.sections()) NORMJIT_RETURN_IF_ERROR(relocate(section));
        NORMJIT_RETURN_IF_ERROR(find_entries());
        return std::move(linked_);
    }

  private:
    static bool is_loaded(const llvm::object::ELFSectionRef& section) {
        return (section.getFlags() & elf::SHF_ALLOC) != 0 && section.getSize() > 0;
    }

    Status place(const SectionRef& section, bool code) {
        if (!is_loaded(section) || section.isText() != code) return {};
        NORMJIT_TRY(const llvm::StringRef contents, value_of(section.getContents()));
        if (section.isBSS() || (llvm::object::ELFSectionRef(section).getFlags() & elf::SHF_WRITE) != 0) {
            return failed("llvm: the code has its own data");
        }
        const uint64_t alignment = section.getAlignment().value();
        const uint64_t start = (linked_.bytes.size() + alignment - 1) / alignment * alignment;
        linked_.bytes.resize(start + contents.size());
        std::memcpy(linked_.bytes.data() + start, contents.data(), contents.size());
        places_[section.getIndex()] = start;
        return {};
    }

    uint64_t place_of(uint64_t section_index) const {
        const auto found = places_.find(section_index);
        return found == places_.end() ? no_place : found->second;
    }

    Status relocate(const SectionRef& relocations) {
        NORMJIT_TRY(const auto target, value_of(relocations.getRelocatedSection()));
        if (target == object_.section_end()) return {};
        const uint64_t start = place_of(target->getIndex());
        if (start == no_place) return {};
        for (const llvm::object::ELFRelocationRef relocation : relocations.relocations()) {
            NORMJIT_TRY(const uint64_t symbol, address_of(*relocation.getSymbol()));
            NORMJIT_TRY(const int64_t addend, value_of(relocation.getAddend()));
            const uint64_t at = start + relocation.getOffset();
            NORMJIT_RETURN_IF_ERROR(apply(relocation.getType(), at, static_cast<int64_t>(symbol - at) + addend));
        }
        return {};
    }

    Expected<uint64_t> address_of(const llvm::object::SymbolRef& symbol) const {
        NORMJIT_TRY(const auto section, value_of(symbol.getSection()));
        const uint64_t start = section == object_.section_end() ? no_place : place_of(section->getIndex());
        NORMJIT_TRY(const uint64_t offset, value_of(symbol.getValue()));
        if (start != no_place) return start + offset;
        NORMJIT_TRY(const llvm::StringRef name, value_of(symbol.getName()));
        return failed(fmt::format("llvm: the code refers to '{}', which is not part of it", name.str()));
    }

    /// Applies a relocation of this type at `at`. `distance` is the distance from the patched place to the target.
    Status apply(uint64_t type, uint64_t at, int64_t distance) {
        uint8_t* place = linked_.bytes.data() + at;
        const bool x86 = object_.getArch() == llvm::Triple::x86_64;
        if (x86 && (type == elf::R_X86_64_PC32 || type == elf::R_X86_64_PLT32) && fits(distance, 32)) {
            patch_bytes(place, distance);
        } else if (!x86 && type == elf::R_AARCH64_LD_PREL_LO19 && distance % 4 == 0 && fits(distance, 21)) {
            patch(place, distance / 4, 5, 19);
        } else if (!x86 && type == elf::R_AARCH64_ADR_PREL_LO21 && fits(distance, 21)) {
            patch(place, distance, 29, 2);
            patch(place, distance >> 2, 5, 19);
        } else if (!x86 && (type == elf::R_AARCH64_CALL26 || type == elf::R_AARCH64_JUMP26) && fits(distance, 28)) {
            patch(place, distance / 4, 0, 26);
        } else {
            return failed(fmt::format("llvm: unknown relocation of type {} over {} bytes", type, distance));
        }
        return {};
    }

    static void patch_bytes(uint8_t* place, int64_t distance) {
        const auto word = static_cast<int32_t>(distance);
        std::memcpy(place, &word, sizeof word);
    }

    Status find_entries() {
        for (const llvm::object::ELFSymbolRef symbol : object_.symbols()) {
            if (symbol.getELFType() != elf::STT_FUNC) continue;
            NORMJIT_TRY(const uint64_t offset, address_of(symbol));
            NORMJIT_TRY(const llvm::StringRef name, value_of(symbol.getName()));
            linked_.entries.push_back({name.str(), static_cast<int64_t>(offset)});
        }
        std::ranges::sort(linked_.entries, {}, &EntryPoint::offset);
        return {};
    }

    const ELF64LEObjectFile& object_;
    std::map<uint64_t, uint64_t> places_;  ///< where the loaded sections are in the code, by section index
    LinkedCode linked_;
};

}  // namespace

Expected<LinkedCode> link(llvm::ArrayRef<char> object) {
    const llvm::MemoryBufferRef buffer(llvm::StringRef(object.data(), object.size()), "normjit");
    NORMJIT_TRY(const ELF64LEObjectFile file, value_of(ELF64LEObjectFile::create(buffer)));
    return Linker(file).run();
}

}  // namespace normjit::backend::llvmir
