/// \file A small loader for the relocatable ELF64 objects that compilers emit for one kernel. No byte is trusted:
/// objects come from a disk cache.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// Code and data of one object in executable memory; unmapped with the last reference.
class ElfImage {
 public:
  /// Maps, relocates and protects (written first, executable after, never both). Throws FormatError for anything but a
  /// well-formed object for this machine whose undefined symbols are all in the list of host_symbol(); OutOfMemoryError
  /// when mapping fails.
  static std::shared_ptr<ElfImage> load(std::span<const uint8_t> object);
  /// Makes all checks of load() that precede mapping, for an object of the given architecture (Target::arch). Throws
  /// FormatError.
  static void check(std::span<const uint8_t> object, std::string_view arch);
  ~ElfImage();
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  /// Returns the address of a global function of the object, nullptr when it has none of this name.
  void* function(std::string_view name) const;

 private:
  ElfImage() = default;
  struct Function {
    std::string name;
    size_t offset;
  };
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
  std::vector<Function> functions_;
};

/// Returns the address of a function that generated code may call (memory, libm, conversions, 128-bit division);
/// nullptr for every other name.
void* host_symbol(std::string_view name);

/// One relocation as the psABI defines it.
struct Relocation {
  uint16_t machine;  ///< e_machine
  uint32_t type;
  uint8_t* place;     ///< the bytes to patch, `width` of which may be touched
  size_t width;       ///< bytes from there to the end of its section
  uint64_t address;   ///< P: its address at run time
  uint64_t symbol;    ///< S: the symbol's address
  int64_t addend;     ///< A
  uint64_t got_slot;  ///< address of the symbol's slot in the offset table, 0 when it has none
};

/// The inputs of a relocation in addition to the symbol's address: the symbol's slot in the offset table, or the
/// relocation at the symbol (an auipc), whose lower bits it gets: then `symbol` and `addend` are those of that one, or
/// its slot, and `address` is where that one lies.
enum class RelocationNeed { kNone, kSlot, kHighPart, kUnknown };
RelocationNeed relocation_need(uint16_t machine, uint32_t type);
/// Patches the location. Throws FormatError when the value does not fit the field or the field the section.
void apply_relocation(const Relocation& r);

inline constexpr uint16_t kElfX86_64 = 62, kElfAArch64 = 183, kElfRiscV = 243;

}  // namespace tg
