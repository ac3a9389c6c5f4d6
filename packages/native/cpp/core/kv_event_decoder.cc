// Invariant: a field is read as soon as it is met, before the event's tag may be known, so what is wrong with it is noted
// and judged when the event ends: fields that its tag does not have cannot spoil it.
#include "kv_event_decoder.h"

#include <array>
#include <charconv>
#include <string_view>

#include "chain_identity.h"
#include "msgpack_reader.h"
#include "plain_tokens.h"

namespace infera {
namespace {

enum Field : std::uint8_t {
  kBlockHashes,
  kParentHash,
  kTokenIds,
  kBlockSize,
  kMedium,
  kGroupIndex,
  kGroupKind,
  kLocality,
  kOwnership,
  kAdapterName,
  kAdapterId,
  kExtraKeys,
  kSalt,
  kFieldCount,
  kNoField = kFieldCount,
};
constexpr std::array<std::string_view, kFieldCount> kFieldNames{
    "block_hashes", "parent_block_hash",  "token_ids", "block_size", "medium",     "group_idx", "kv_cache_spec_kind",
    "locality",     "ownership",          "lora_name", "lora_id",    "extra_keys", "cache_salt"};

// Fields of array events by position; position 0 is the tag.
constexpr std::array<Field, 11> kStoredFields{kNoField, kBlockHashes, kParentHash, kTokenIds,   kBlockSize, kAdapterId,
                                              kMedium,  kAdapterName, kExtraKeys,  kGroupIndex, kGroupKind};
constexpr std::array<Field, 4> kRemovedFields{kNoField, kBlockHashes, kMedium, kGroupIndex};

constexpr std::size_t kNameBytesMax = 64;
// An event is the outermost value for the depth of nesting; its fields lie one deeper.
constexpr std::uint32_t kFieldDepth = 1;
constexpr std::uint32_t kChunk = 1024;
constexpr std::uint64_t kScratchBytesMax = std::uint64_t{1} << 20;

enum class FieldState : std::uint8_t { kAbsent, kNil, kGood, kBad };

Field FieldNamed(std::string_view name) noexcept {
  for (std::uint8_t field = 0; field < kFieldCount; ++field)
    if (name == kFieldNames[field]) return static_cast<Field>(field);
  return kNoField;
}

bool IsPrefixGroup(std::string_view kind) noexcept {
  return kind == "full_attention" || kind == "mla_attention" || kind == "sink_full_attention";
}

class BatchDecoder {
 public:
  BatchDecoder(std::span<const std::byte> payload, DecodedKvBatch& batch) noexcept : reader_(payload), batch_(batch) {}

  // False when the batch is malformed, or memory ran out.
  [[nodiscard]] bool Run() noexcept {
    bool has_events = false;
    std::uint32_t count = 0;
    if (reader_.Peek() == MsgpackKind::kMap) {
      if (!reader_.MapLength(count)) return false;
      for (; count > 0; --count) {
        std::string_view name;
        if (!Name(0, name)) return false;
        if (name == "events") {
          // Of two lists the last counts.
          Restart();
          if (!Events()) return false;
          has_events = true;
        } else if (!reader_.Skip()) {
          return false;
        }
      }
    } else {
      if (!reader_.ArrayLength(count) || count < 2) return false;
      if (!reader_.Skip() || !Events()) return false;
      has_events = true;
      for (count -= 2; count > 0; --count)
        if (!reader_.Skip()) return false;
    }
    return has_events && reader_.at_end();
  }

 private:
  void Restart() noexcept {
    batch_.events.Resize(0);
    batch_.hashes.Resize(0);
    batch_.tokens.Resize(0);
    batch_.marks.Resize(0);
    batch_.unknown_tags = batch_.bad_events = 0;
  }

  // The next value as a short text; empty, and passed over, when it is something else. False when malformed.
  [[nodiscard]] bool Name(std::uint32_t depth, std::string_view& name) noexcept {
    name = {};
    if (reader_.String(name)) {
      if (name.size() > kNameBytesMax) name = {};
      return true;
    }
    return !reader_.malformed() && reader_.Skip(depth);
  }

  [[nodiscard]] bool Events() noexcept {
    std::uint32_t count = 0;
    if (!reader_.ArrayLength(count)) return false;
    for (; count > 0; --count)
      if (!Event()) return false;
    return true;
  }

  [[nodiscard]] bool Event() noexcept {
    event_ = KvEvent{};
    states_.fill(FieldState::kAbsent);
    is_remote_[0] = is_remote_[1] = false;
    event_.hash_begin = batch_.hashes.size();
    event_.token_begin = batch_.tokens.size();
    event_.mark_begin = batch_.marks.size();
    std::string_view tag;
    std::uint32_t count = 0;
    switch (reader_.Peek()) {
      case MsgpackKind::kNone:
        return false;
      case MsgpackKind::kMap:
        if (!reader_.MapLength(count)) return false;
        for (; count > 0; --count) {
          std::string_view name;
          if (!Name(kFieldDepth, name)) return false;
          if (name == "type") {
            if (!Name(kFieldDepth, tag)) return false;
          } else if (!Read(FieldNamed(name))) {
            return false;
          }
        }
        break;
      case MsgpackKind::kArray: {
        if (!reader_.ArrayLength(count)) return false;
        if (count > 0 && !Name(kFieldDepth, tag)) return false;
        const bool is_stored = tag == "BlockStored";
        const bool is_removed = tag == "BlockRemoved";
        for (std::uint32_t at = 1; at < count; ++at) {
          Field field = kNoField;
          if (is_stored && at < kStoredFields.size()) field = kStoredFields[at];
          if (is_removed && at < kRemovedFields.size()) field = kRemovedFields[at];
          const bool is_read = field == kAdapterName || field == kExtraKeys ? ReadShared(field) : Read(field);
          if (!is_read) return false;
        }
        break;
      }
      default:
        if (!reader_.Skip()) return false;
        break;
    }
    return Finish(tag);
  }

  // A position of array events that engines use in more than one way.
  [[nodiscard]] bool ReadShared(Field field) noexcept {
    const MsgpackKind kind = reader_.Peek();
    if (field == kExtraKeys) return Read(kind == MsgpackKind::kArray ? field : kNoField);
    if (kind != MsgpackKind::kMap) return Read(kind == MsgpackKind::kString ? field : kNoField);
    std::uint32_t count = 0;
    if (!reader_.MapLength(count)) return false;
    for (; count > 0; --count) {
      std::string_view name;
      if (!Name(kFieldDepth + 1, name)) return false;
      if (!Read(name == kFieldNames[kSalt] ? kSalt : kNoField, kFieldDepth + 1)) return false;
    }
    return true;
  }

  // One field's value; the reader ends behind it in any case. False when malformed or out of memory.
  [[nodiscard]] bool Read(Field field, std::uint32_t depth = kFieldDepth) noexcept {
    if (field == kNoField) return reader_.Skip(depth);
    const MsgpackKind kind = reader_.Peek();
    if (kind == MsgpackKind::kNone) return false;
    states_[field] = FieldState::kNil;
    if (kind == MsgpackKind::kNil) return reader_.Skip(depth);
    states_[field] = FieldState::kBad;
    std::string_view text;
    bool is_good = false;
    switch (field) {
      case kBlockHashes:
        return kind == MsgpackKind::kArray ? Hashes() : reader_.Skip(kFieldDepth);
      case kTokenIds:
        return kind == MsgpackKind::kArray ? Tokens() : reader_.Skip(kFieldDepth);
      case kParentHash:
        is_good = Hash(event_.parent_hash);
        break;
      case kBlockSize:
        is_good = reader_.SmallInteger(event_.block_size);
        break;
      case kGroupIndex:
        is_good = reader_.SmallInteger(event_.group_index);
        break;
      case kMedium:
        is_good = reader_.String(text);
        if (is_good) {
          const std::optional<Tier> tier = TierOfMedium(text);
          event_.place = tier ? static_cast<KvEvent::Place>(IndexOf(*tier)) : KvEvent::Place::kUnknown;
        }
        break;
      case kGroupKind:
        is_good = reader_.String(text);
        event_.group = is_good && IsPrefixGroup(text) ? KvEvent::Group::kPrefix : KvEvent::Group::kOther;
        break;
      case kLocality:
      case kOwnership:
        is_good = reader_.String(text);
        is_remote_[field - kLocality] = text == "REMOTE";
        break;
      case kAdapterName:
        is_good = reader_.String(adapter_name_);
        break;
      case kSalt:
        is_good = reader_.String(salt_);
        break;
      case kAdapterId:
        is_good = reader_.SmallInteger(adapter_id_);
        break;
      case kExtraKeys:
        // Read once the whole event is known: the adapter may come behind.
        if (kind == MsgpackKind::kArray) states_[field] = FieldState::kGood;
        extra_keys_ = reader_.here();
        return reader_.Skip(depth);
      default:
        break;
    }
    if (is_good) {
      states_[field] = FieldState::kGood;
      return true;
    }
    return !reader_.malformed() && reader_.Skip(depth);
  }

  // An integer, or the last 8 bytes of a byte string as a big-endian number: what vLLM prints as the integer form of the
  // same digest. False, in front of the value, when it is neither.
  [[nodiscard]] bool Hash(std::uint64_t& hash) noexcept {
    if (reader_.IntegerAsU64(hash)) return true;
    if (reader_.malformed()) return false;
    const std::byte* const start = reader_.here();
    std::span<const std::byte> bytes;
    if (!reader_.Binary(bytes)) return false;
    if (bytes.empty()) {
      reader_.MoveTo(start);
      return false;
    }
    if (bytes.size() > 8) bytes = bytes.last(8);
    hash = 0;
    for (const std::byte byte : bytes) hash = hash << 8 | static_cast<std::uint64_t>(byte);
    return true;
  }

  [[nodiscard]] bool SkipMany(std::uint32_t count, std::uint32_t depth) noexcept {
    for (; count > 0; --count)
      if (!reader_.Skip(depth)) return false;
    return true;
  }

  [[nodiscard]] bool Hashes() noexcept {
    std::uint32_t count = 0;
    if (!reader_.ArrayLength(count)) return false;
    batch_.hashes.Resize(event_.hash_begin);
    while (count > 0) {
      const std::uint32_t chunk = count < kChunk ? count : kChunk;
      if (!batch_.hashes.Reserve(chunk)) return OutOfMemory();
      std::uint64_t* const out = batch_.hashes.data() + batch_.hashes.size();
      for (std::uint32_t at = 0; at < chunk; ++at) {
        const std::byte* const here = reader_.here();
        if (reader_.left() >= 9 && (*here == std::byte{0xcf} || *here == std::byte{0xd3})) {
          out[at] = LoadBig<std::uint64_t>(here + 1);
          reader_.MoveTo(here + 9);
        } else if (!Hash(out[at])) {
          return !reader_.malformed() && SkipMany(count - at, kFieldDepth + 1);
        }
      }
      batch_.hashes.Resize(batch_.hashes.size() + chunk);
      count -= chunk;
    }
    event_.hash_count = batch_.hashes.size() - event_.hash_begin;
    states_[kBlockHashes] = FieldState::kGood;
    return true;
  }

  // Token ids, or overlapping pairs of them (speculative decoding), whose first elements are the tokens.
  [[nodiscard]] bool Tokens() noexcept {
    std::uint32_t count = 0;
    if (!reader_.ArrayLength(count)) return false;
    batch_.tokens.Resize(event_.token_begin);
    const bool are_pairs = count > 0 && reader_.Peek() == MsgpackKind::kArray;
    while (count > 0) {
      const std::uint32_t chunk = count < kChunk ? count : kChunk;
      if (!batch_.tokens.Reserve(chunk)) return OutOfMemory();
      std::uint32_t* const out = batch_.tokens.data() + batch_.tokens.size();
      std::uint32_t at = are_pairs ? 0 : PlainTokens(out, chunk);
      for (; at < chunk; ++at) {
        std::uint32_t rest = 1;
        std::int64_t token = 0;
        if (are_pairs) {
          if (!reader_.ArrayLength(rest)) return !reader_.malformed() && SkipMany(count - at, kFieldDepth + 1);
          if (rest == 0) return SkipMany(count - at - 1, kFieldDepth + 1);
        }
        const std::uint32_t depth = kFieldDepth + (are_pairs ? 2 : 1);
        const bool is_read = reader_.SmallInteger(token);
        if (!is_read || token < 0 || token > 0xffffffff) {
          if (reader_.malformed()) return false;
          if (!is_read && !reader_.Skip(depth)) return false;
          return SkipMany(rest - 1, depth) && SkipMany(count - at - 1, kFieldDepth + 1);
        }
        out[at] = static_cast<std::uint32_t>(token);
        if (!SkipMany(rest - 1, depth)) return false;
      }
      batch_.tokens.Resize(batch_.tokens.size() + chunk);
      count -= chunk;
    }
    event_.token_count = batch_.tokens.size() - event_.token_begin;
    states_[kTokenIds] = FieldState::kGood;
    return true;
  }

  // As many tokens as are packed in the usual ways. @returns how many; the reader is in front of the next.
  [[nodiscard]] std::uint32_t PlainTokens(std::uint32_t* out, std::uint32_t count) noexcept {
    const std::byte* here = reader_.here();
    const std::uint32_t read = ReadPlainTokens(here, reader_.end(), out, count);
    reader_.MoveTo(here);
    return read;
  }

  [[nodiscard]] bool OutOfMemory() noexcept {
    batch_.is_out_of_memory = true;
    return false;
  }

  // Judges the event by its tag and keeps it, or counts it.
  [[nodiscard]] bool Finish(std::string_view tag) noexcept {
    const auto is = [this](Field field, FieldState state) { return states_[field] == state; };
    bool keep = false;
    if (tag == "AllBlocksCleared") {
      event_.type = KvEvent::Type::kCleared;
      event_.hash_count = event_.token_count = 0;
      keep = true;
    } else if (tag == "BlockStored" || tag == "BlockRemoved") {
      const bool is_stored = tag == "BlockStored";
      event_.type = is_stored ? KvEvent::Type::kStored : KvEvent::Type::kRemoved;
      bool is_bad = !is(kBlockHashes, FieldState::kGood) || is(kMedium, FieldState::kBad) ||
                    is(kGroupIndex, FieldState::kBad) || is(kLocality, FieldState::kBad) ||
                    is(kOwnership, FieldState::kBad);
      // Nil is a chain's head. An event that says nothing of its parent must not pass for one.
      if (is_stored)
        is_bad = is_bad || !is(kTokenIds, FieldState::kGood) || is(kParentHash, FieldState::kAbsent) ||
                 is(kParentHash, FieldState::kBad) || is(kBlockSize, FieldState::kBad) || is(kGroupKind, FieldState::kBad) ||
                 is(kAdapterName, FieldState::kBad) || is(kAdapterId, FieldState::kBad) ||
                 is(kExtraKeys, FieldState::kBad) || is(kSalt, FieldState::kBad);
      if (is_bad) ++batch_.bad_events;
      keep = !is_bad;
    } else if (tag.empty()) {
      ++batch_.bad_events;
    } else {
      ++batch_.unknown_tags;
    }
    if (!keep || event_.type == KvEvent::Type::kCleared) batch_.hashes.Resize(event_.hash_begin);
    if (!keep || event_.type != KvEvent::Type::kStored) {
      event_.token_count = 0;
      batch_.tokens.Resize(event_.token_begin);
    }
    if (!keep) return true;
    event_.has_parent = is(kParentHash, FieldState::kGood);
    event_.has_block_size = is(kBlockSize, FieldState::kGood);
    event_.has_group_index = is(kGroupIndex, FieldState::kGood);
    if (!is(kMedium, FieldState::kGood)) event_.place = KvEvent::Place::kDevice;
    if (!is(kGroupKind, FieldState::kGood)) event_.group = KvEvent::Group::kUnstated;
    if ((is(kLocality, FieldState::kGood) && is_remote_[0]) || (is(kOwnership, FieldState::kGood) && is_remote_[1]))
      event_.place = KvEvent::Place::kRemote;
    if (event_.type == KvEvent::Type::kStored && !Identify()) return OutOfMemory();
    if (!batch_.events.Reserve(1)) return OutOfMemory();
    batch_.events[batch_.events.size()] = event_;
    batch_.events.Resize(batch_.events.size() + 1);
    return true;
  }

  // Whose blocks the stored ones are. False without memory.
  [[nodiscard]] bool Identify() noexcept {
    const auto has = [this](Field field) { return states_[field] == FieldState::kGood; };
    const bool has_id = has(kAdapterId) && adapter_id_ != 0;
    if (!has(kAdapterName) && !has_id && !has(kExtraKeys) && !has(kSalt)) return true;
    if (!has(kAdapterName)) adapter_name_ = {};
    if (!has(kSalt)) salt_ = {};
    if (has(kExtraKeys) && !Marks(has_id)) return false;
    if (event_.has_parent) return true;
    std::array<char, 24> digits{'#'};
    std::string_view adapter = adapter_name_;
    if (adapter.empty() && has_id) {
      const char* const end = std::to_chars(digits.data() + 1, digits.data() + digits.size(), adapter_id_).ptr;
      adapter = std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
    }
    event_.chain_parent = ChainParent(adapter, salt_);
    return true;
  }

  // A mark per list of extra keys, if any of them says something. They were found to be sound when they were passed over.
  [[nodiscard]] bool Marks(bool has_id) noexcept {
    MsgpackReader keys(std::span(extra_keys_, reader_.end()));
    std::uint32_t count = 0;
    if (!keys.ArrayLength(count)) return true;
    for (std::uint32_t at = 0; at < count; ++at) {
      const std::uint64_t mark = MarkOfList(keys, at == 0 && !event_.has_parent, has_id);
      if (mark == 0) continue;
      if (event_.mark_count == 0) {
        if (!batch_.marks.Reserve(count)) return false;
        std::memset(batch_.marks.data() + event_.mark_begin, 0, count * sizeof mark);
        batch_.marks.Resize(event_.mark_begin + count);
        event_.mark_count = count;
      }
      batch_.marks[event_.mark_begin + at] = mark;
    }
    return true;
  }

  // Moves behind one block's extra keys. What the first block of a prompt says may be its salt.
  [[nodiscard]] std::uint64_t MarkOfList(MsgpackReader& keys, bool is_first, bool has_id) noexcept {
    const std::byte* const begin = keys.here();
    std::uint32_t count = 0;
    bool says_nothing = keys.Peek() == MsgpackKind::kNil;
    if (!keys.ArrayLength(count)) {
      (void)keys.Skip();
    } else {
      if (count > 0 && IsAdapter(keys, has_id)) --count;
      says_nothing = count == 0;
      if (is_first && count == 1) {
        std::string_view text;
        if (keys.String(text)) {
          if (salt_.empty()) salt_ = text;
          says_nothing = salt_ == text;
          count = 0;
        }
      }
      for (; count > 0; --count) (void)keys.Skip();
    }
    return says_nothing ? 0 : MarkOf(std::span(begin, keys.here()));
  }

  // Whether the next value is the adapter, as one of the extra keys; passes over it then.
  [[nodiscard]] bool IsAdapter(MsgpackReader& keys, bool has_id) noexcept {
    const std::byte* const begin = keys.here();
    std::string_view name;
    std::int64_t id = 0;
    if (!adapter_name_.empty() && keys.String(name) && name == adapter_name_) return true;
    keys.MoveTo(begin);
    if (has_id && keys.SmallInteger(id) && id == adapter_id_) return true;
    keys.MoveTo(begin);
    return false;
  }

  MsgpackReader reader_;
  DecodedKvBatch& batch_;
  KvEvent event_;
  std::array<FieldState, kFieldCount> states_{};
  std::array<bool, 2> is_remote_{};
  std::string_view adapter_name_;
  std::string_view salt_;
  std::int64_t adapter_id_ = 0;
  const std::byte* extra_keys_ = nullptr;
};

}  // namespace

void DecodedKvBatch::Trim() noexcept {
  events.Trim(kScratchBytesMax);
  hashes.Trim(kScratchBytesMax);
  tokens.Trim(kScratchBytesMax);
  marks.Trim(kScratchBytesMax);
  chain.Trim(kScratchBytesMax);
}

void DecodeKvBatch(std::span<const std::byte> payload, DecodedKvBatch& batch) noexcept {
  batch.events.Resize(0);
  batch.hashes.Resize(0);
  batch.tokens.Resize(0);
  batch.marks.Resize(0);
  batch.unknown_tags = batch.bad_events = 0;
  batch.is_malformed = batch.is_out_of_memory = false;
  if (payload.size() <= 0xffffffff && BatchDecoder(payload, batch).Run()) return;
  batch.events.Resize(0);
  batch.unknown_tags = batch.bad_events = 0;
  batch.is_malformed = true;
}

}  // namespace infera
