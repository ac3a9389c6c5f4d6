// The same shapes and faults as packages/router/src/cache/kv-event-decoder.test.ts.
#include "kv_event_decoder.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "msgpack_reader.h"
#include "pack.h"
#include "plain_tokens.h"
#include "random.h"
#include "suites.h"

namespace infera::testing {
namespace {

const char* const kVectorArrays = "93cb3ff80000000000009197ab426c6f636b53746f726564926fccdec098010203040506070804c0c0c0";
const char* const kVectorMaps =
    "93cb3ff80000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573926fccdeb1706172656e745f626c6f63"
    "6b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0c0";
const char* const kVectorFull =
    "93cb3ff80000000000009397ab426c6f636b53746f72656492fbcf8000000000000001f99492010292020392030492040504c0a347505593ac42"
    "6c6f636b52656d6f766564916faa4350555f50494e4e454491b0416c6c426c6f636b73436c656172656401";

struct Decoder {
  MemoryLedger ledger{1u << 24};
  DecodedKvBatch batch{ledger};
  DecodedKvBatch& operator()(std::span<const std::byte> bytes) {
    // A copy of the exact size, so that a sanitizer sees a read behind its end.
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    copy.shrink_to_fit();
    DecodeKvBatch(copy, batch);
    return batch;
  }
  std::vector<std::uint32_t> Tokens(std::size_t event) {
    const auto tokens = batch.tokens.From(batch.events[event].token_begin, batch.events[event].token_count);
    return {tokens.begin(), tokens.end()};
  }
  std::vector<std::uint64_t> Hashes(std::size_t event) {
    const auto hashes = batch.hashes.From(batch.events[event].hash_begin, batch.events[event].hash_count);
    return {hashes.begin(), hashes.end()};
  }
};

Pack BatchOf(const std::vector<Pack>& events) {
  Pack pack;
  pack.Array(3).Float(1.5).Array(static_cast<std::uint32_t>(events.size()));
  for (const Pack& event : events) pack.Raw(event);
  return pack.Nil();
}

using Fields = std::vector<std::pair<std::string, Pack>>;
Pack Tokens(std::uint32_t count) {
  Pack pack;
  pack.Array(count);
  for (std::uint32_t at = 1; at <= count; ++at) pack.Int(at);
  return pack;
}
Fields StoredFields() {
  return {{"type", Pack().Text("BlockStored")}, {"block_hashes", Pack().Array(2).Int(111).Int(222)},
          {"parent_block_hash", Pack().Nil()},  {"token_ids", Tokens(8)},
          {"block_size", Pack().Int(4)},        {"lora_id", Pack().Nil()}};
}
Pack MapOf(const Fields& fields) {
  Pack pack;
  pack.Map(static_cast<std::uint32_t>(fields.size()));
  for (const auto& [name, value] : fields) pack.Text(name).Raw(value);
  return pack;
}
Pack StoredWith(const std::string& name, const Pack& value) {
  Fields fields = StoredFields();
  for (auto& field : fields)
    if (field.first == name) {
      field.second = value;
      return MapOf(fields);
    }
  fields.emplace_back(name, value);
  return MapOf(fields);
}
Pack ArrayEvent() {
  return Pack().Array(7).Text("BlockStored").Array(2).Int(111).Int(222).Nil().Raw(Tokens(8)).Int(4).Nil().Nil();
}

void ExpectPlain(Decoder& decode, std::size_t event) {
  const KvEvent& stored = decode.batch.events[event];
  CHECK(stored.type == KvEvent::Type::kStored);
  CHECK(stored.place == KvEvent::Place::kDevice);
  CHECK(stored.group == KvEvent::Group::kUnstated);
  CHECK(!stored.has_parent && !stored.has_group_index && stored.has_block_size);
  CHECK_EQ(stored.block_size, 4);
  CHECK((decode.Hashes(event) == std::vector<std::uint64_t>{111, 222}));
  CHECK((decode.Tokens(event) == std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

void WireVectors() {
  Decoder decode;
  for (const char* const vector : {kVectorArrays, kVectorMaps}) {
    decode(FromHex(vector));
    CHECK(!decode.batch.is_malformed && decode.batch.bad_events == 0 && decode.batch.unknown_tags == 0);
    CHECK_EQ(decode.batch.events.size(), 1u);
    ExpectPlain(decode, 0);
  }
  decode(FromHex(kVectorFull));
  CHECK_EQ(decode.batch.events.size(), 3u);
  CHECK((decode.Hashes(0) == std::vector<std::uint64_t>{std::uint64_t(-5), (std::uint64_t{1} << 63) + 1}));
  CHECK_EQ(decode.batch.events[0].parent_hash, std::uint64_t(-7));
  CHECK(decode.batch.events[0].has_parent);
  CHECK((decode.Tokens(0) == std::vector<std::uint32_t>{1, 2, 3, 4}));
  CHECK(decode.batch.events[1].type == KvEvent::Type::kRemoved);
  CHECK(decode.batch.events[1].place == KvEvent::Place::kHost);
  CHECK((decode.Hashes(1) == std::vector<std::uint64_t>{111}));
  CHECK(decode.batch.events[2].type == KvEvent::Type::kCleared);
}

void Shapes() {
  Decoder decode;
  decode(BatchOf({ArrayEvent(), MapOf(StoredFields())}).bytes());
  CHECK_EQ(decode.batch.events.size(), 2u);
  ExpectPlain(decode, 0);
  ExpectPlain(decode, 1);
  const Pack as_map = Pack().Map(3).Text("ts").Float(1.5).Text("events").Array(2).Raw(MapOf(StoredFields())).Raw(ArrayEvent())
                          .Text("data_parallel_rank").Int(3);
  decode(as_map.bytes());
  CHECK_EQ(decode.batch.events.size(), 2u);
  ExpectPlain(decode, 0);
  ExpectPlain(decode, 1);
  decode(Pack().Array(2).Float(1.5).Array(1).Raw(MapOf(StoredFields())).bytes());
  ExpectPlain(decode, 0);
  // Of two event lists the last counts, bad events and all.
  decode(Pack().Map(2).Text("events").Array(1).Array(0).Text("events").Array(1).Raw(ArrayEvent()).bytes());
  CHECK_EQ(decode.batch.bad_events, 0u);
  CHECK_EQ(decode.batch.events.size(), 1u);
}

void Lengths() {
  for (const std::uint32_t length : {4u, 5u, 7u, 10u, 11u, 12u, 15u}) {
    const std::vector<Pack> full{Pack().Text("BlockStored"), Pack().Array(2).Int(111).Int(222), Pack().Nil(), Tokens(8),
                                 Pack().Int(4), Pack().Nil(), Pack().Nil(), Pack().Text("lora"), Pack().Array(1).Nil(),
                                 Pack().Int(3), Pack().Text("full_attention"), Pack().Nil(), Pack().Text("later"),
                                 Pack().Map(1).Text("a").Int(1), Pack().Int(7)};
    Pack event;
    event.Array(length);
    for (std::uint32_t at = 0; at < length; ++at) event.Raw(full[at]);
    Decoder decode;
    decode(BatchOf({event}).bytes());
    CHECK_EQ(decode.batch.events.size(), 1u);
    CHECK_EQ(decode.batch.events[0].token_count, 8u);
    CHECK_EQ(decode.batch.events[0].has_group_index, length > 9);
    CHECK(decode.batch.events[0].group == (length > 10 ? KvEvent::Group::kPrefix : KvEvent::Group::kUnstated));
  }
}

void AnyOrder() {
  Fields fields = StoredFields();
  std::vector<std::pair<std::string, Pack>> shuffled(fields.rbegin(), fields.rend());
  shuffled.insert(shuffled.begin(), {"z", Pack().Map(1).Text("a").Array(2).Int(1).Map(1).Text("b").Int(2)});
  shuffled.emplace_back("y", Pack().Float(1.25));
  Decoder decode;
  decode(BatchOf({MapOf(shuffled)}).bytes());
  ExpectPlain(decode, 0);
  // Of a field that comes twice the last counts, even after a bad one.
  fields.insert(fields.begin(), {"token_ids", Pack().Text("no")});
  fields.insert(fields.begin(), {"medium", Pack().Text("CPU")});
  fields.emplace_back("medium", Pack().Nil());
  decode(BatchOf({MapOf(fields)}).bytes());
  CHECK_EQ(decode.batch.bad_events, 0u);
  ExpectPlain(decode, 0);
}

void ByteHashes() {
  std::vector<std::uint8_t> digest;
  for (std::uint8_t at = 0; at < 32; ++at) digest.push_back(at);
  Fields fields = StoredFields();
  fields[1].second = Pack().Array(3).Bytes(digest).Int(0x18191a1b1c1d1e1f).Bytes(std::array<std::uint8_t, 2>{1, 2});
  fields[2].second = Pack().Bytes(digest);
  Decoder decode;
  decode(BatchOf({MapOf(fields)}).bytes());
  CHECK((decode.Hashes(0) == std::vector<std::uint64_t>{0x18191a1b1c1d1e1f, 0x18191a1b1c1d1e1f, 0x102}));
  CHECK_EQ(decode.batch.events[0].parent_hash, 0x18191a1b1c1d1e1fu);
}

void TokenWidths() {
  Pack tokens;
  tokens.Array(9).Int(0).Int(127).Int(128).Int(255).Int(256).Int(65535).Int(65536).Int(0xffffffff);
  tokens.Byte(0xcf);
  for (int at = 0; at < 7; ++at) tokens.Byte(0);
  tokens.Byte(7);
  const std::vector<std::uint32_t> expected{0, 127, 128, 255, 256, 65535, 65536, 0xffffffff, 7};
  Decoder decode;
  decode(BatchOf({StoredWith("token_ids", tokens)}).bytes());
  CHECK(decode.Tokens(0) == expected);
  // More than one chunk of them.
  Random random(3);
  std::vector<std::uint32_t> many;
  Pack packed;
  packed.Array(5000);
  for (int at = 0; at < 5000; ++at) {
    many.push_back(static_cast<std::uint32_t>(random.Next() >> (32 + random.Below(32))));
    packed.Int(many.back());
  }
  decode(BatchOf({StoredWith("token_ids", packed)}).bytes());
  CHECK(decode.Tokens(0) == many);
}

// Runs of ids of all widths, other things among them, cut off anywhere: the two ways read what a reader of single values reads.
void PlainRuns() {
  Random random(29);
  for (int round = 0; round < 20000; ++round) {
    Pack pack;
    std::vector<std::uint32_t> ids;
    const std::uint32_t count = 1 + random.Below(40);
    const std::uint32_t strange_one_in = random.OneIn(2) ? 1000 : 20;
    bool is_plain = true;
    for (std::uint32_t at = 0; at < count; ++at) {
      if (random.OneIn(strange_one_in)) {
        if (random.OneIn(2)) pack.Nil();
        else pack.Int(std::uint64_t{1} << 40);
        is_plain = false;
      } else {
        const auto id = static_cast<std::uint32_t>(random.Next() >> (32 + random.Below(32)));
        pack.Int(id);
        if (is_plain) ids.push_back(id);
      }
    }
    std::vector<std::byte> bytes = pack.bytes();
    if (random.OneIn(3)) bytes.resize(random.Below(static_cast<std::uint32_t>(bytes.size()) + 1));
    bytes.shrink_to_fit();
    for (const auto read : {ReadPlainTokens, ReadPlainTokensPortably}) {
      std::vector<std::uint32_t> out(count);
      const std::byte* here = bytes.data();
      const std::uint32_t got = read(here, bytes.data() + bytes.size(), out.data(), count);
      CHECK(got <= ids.size());
      for (std::uint32_t at = 0; at < got; ++at) CHECK_EQ(out[at], ids[at]);
      // It ends early only where that is said.
      if (got < ids.size()) CHECK(bytes.data() + bytes.size() - here < 8);
      Pack again;
      for (std::uint32_t at = 0; at < got; ++at) again.Int(out[at]);
      CHECK_EQ(static_cast<std::size_t>(here - bytes.data()), again.bytes().size());
    }
  }
}

void Places() {
  const std::vector<std::pair<std::string, KvEvent::Place>> media{
      {"GPU", KvEvent::Place::kDevice},     {"gpu", KvEvent::Place::kDevice},    {"CPU", KvEvent::Place::kHost},
      {"CPU_PINNED", KvEvent::Place::kHost}, {"CPU_TIER1", KvEvent::Place::kHost}, {"CPU_TIER2", KvEvent::Place::kHost},
      {"DISK", KvEvent::Place::kDisk},      {"STORAGE", KvEvent::Place::kDisk},  {"EXTERNAL", KvEvent::Place::kRemote},
      {"CXL", KvEvent::Place::kUnknown},    {"", KvEvent::Place::kUnknown}};
  Decoder decode;
  for (const auto& [medium, place] : media) {
    decode(BatchOf({StoredWith("medium", Pack().Text(medium))}).bytes());
    CHECK(decode.batch.events[0].place == place);
  }
  for (const char* const name : {"locality", "ownership"}) {
    Fields fields = StoredFields();
    fields.emplace_back("medium", Pack().Text("GPU"));
    fields.emplace_back(name, Pack().Text("REMOTE"));
    decode(BatchOf({MapOf(fields)}).bytes());
    CHECK(decode.batch.events[0].place == KvEvent::Place::kRemote);
    decode(BatchOf({StoredWith(name, Pack().Text("LOCAL"))}).bytes());
    CHECK(decode.batch.events[0].place == KvEvent::Place::kDevice);
  }
}

void UnknownTags() {
  Decoder decode;
  decode(BatchOf({Pack().Array(3).Text("BlockMoved").Int(1).Map(1).Text("a").Int(2), MapOf(StoredFields()),
                  Pack().Map(1).Text("type").Text("Other")})
             .bytes());
  CHECK_EQ(decode.batch.unknown_tags, 2u);
  CHECK_EQ(decode.batch.bad_events, 0u);
  CHECK_EQ(decode.batch.events.size(), 1u);
}

void BadEvents() {
  const Pack fraction = Pack().Float(1.5);
  const std::vector<Pack> bad{
      StoredWith("token_ids", Pack().Array(1).Int(std::uint64_t{1} << 32)),
      StoredWith("token_ids", Pack().Array(2).SignedInt(-1).Int(5)),
      StoredWith("token_ids", Pack().Array(1).Int(~std::uint64_t{0})),
      StoredWith("token_ids", Pack().Text("abc")),
      StoredWith("token_ids", Pack().Array(2).Array(2).Int(1).Int(2).Int(3)),
      StoredWith("token_ids", Pack().Array(2).Int(1).Array(2).Int(2).Int(3)),
      StoredWith("token_ids", Pack().Array(1).Array(0)),
      StoredWith("token_ids", Pack().Array(2).Array(1).Raw(fraction).Array(1).Int(1)),
      StoredWith("token_ids", Pack().Nil()),
      StoredWith("token_ids", Pack().Array(1).Raw(fraction)),
      StoredWith("block_hashes", Pack().Nil()),
      StoredWith("block_hashes", Pack().Array(2).Int(1).Raw(fraction)),
      StoredWith("block_hashes", Pack().Array(1).Bytes({})),
      StoredWith("block_hashes", Pack().Array(1).Text("1")),
      StoredWith("parent_block_hash", fraction),
      StoredWith("block_size", fraction),
      StoredWith("block_size", Pack().Int(std::uint64_t{1} << 53)),
      StoredWith("group_idx", Pack().Text("0")),
      StoredWith("kv_cache_spec_kind", Pack().Int(1)),
      StoredWith("locality", Pack().Int(1)),
      StoredWith("type", Pack().Int(1)),
      StoredWith("type", Pack().Text(std::string(65, 'x'))),
      Pack().Map(3).Text("type").Text("BlockStored").Text("block_hashes").Array(1).Int(1).Text("token_ids").Array(1).Int(1),
      Pack().Array(2).Text("BlockRemoved").Int(5),
      Pack().Array(3).Text("BlockRemoved").Array(1).Int(5).Int(5),
      Pack().Array(2).Int(1).Array(1).Int(1),
      Pack().Map(1).Text("block_hashes").Array(1).Int(1),
      Pack().Int(7),
      Pack().Array(0),
  };
  Decoder decode;
  for (const Pack& event : bad) {
    decode(BatchOf({MapOf(StoredFields()), event, ArrayEvent()}).bytes());
    CHECK(!decode.batch.is_malformed);
    CHECK_EQ(decode.batch.bad_events, 1u);
    CHECK_EQ(decode.batch.unknown_tags, 0u);
    CHECK_EQ(decode.batch.events.size(), 2u);
    ExpectPlain(decode, 0);
    ExpectPlain(decode, 1);
  }
}

void ForeignFields() {
  // What a removal does not have cannot spoil it, nor does anything spoil a clearing.
  Decoder decode;
  decode(BatchOf({Pack().Map(3).Text("type").Text("BlockRemoved").Text("block_hashes").Array(1).Int(9).Text("token_ids").Float(1),
                  Pack().Map(2).Text("type").Text("AllBlocksCleared").Text("block_hashes").Int(3)})
             .bytes());
  CHECK_EQ(decode.batch.bad_events, 0u);
  CHECK_EQ(decode.batch.events.size(), 2u);
  CHECK((decode.Hashes(0) == std::vector<std::uint64_t>{9}));
}

void Malformed() {
  std::string promises = "92c0";
  for (int at = 0; at < 50; ++at) promises += "dd00ffffff";
  std::string nested = "92c0";
  for (int at = 0; at < 5000; ++at) nested += "91";
  const std::vector<std::vector<std::byte>> payloads{
      {},
      Pack().Int(7).bytes(),
      Pack().Array(1).Float(1.5).bytes(),
      Pack().Map(1).Text("ts").Float(1.5).bytes(),
      Pack().Array(2).Float(1.5).Map(0).bytes(),
      FromHex("92c0ddffffffff"),
      FromHex(promises),
      FromHex(nested + "c0"),
      FromHex("92c091c1"),
      FromHex(std::string(kVectorArrays) + "00"),
  };
  Decoder decode;
  for (const auto& payload : payloads) {
    decode(payload);
    CHECK(decode.batch.is_malformed && !decode.batch.is_out_of_memory);
    CHECK_EQ(decode.batch.events.size(), 0u);
  }
  for (const char* const vector : {kVectorArrays, kVectorMaps, kVectorFull}) {
    const std::vector<std::byte> bytes = FromHex(vector);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      decode(std::span(bytes).first(length));
      CHECK(decode.batch.is_malformed);
    }
  }
}

void Depth() {
  // An event is depth 0: 63 arrays around the nil of a field at depth 1 still pass, 64 do not.
  for (const int arrays : {63, 64}) {
    Pack event;
    event.Array(2).Text("Deep");
    for (int at = 0; at < arrays; ++at) event.Array(1);
    event.Nil();
    Decoder decode;
    decode(BatchOf({event}).bytes());
    CHECK_EQ(decode.batch.is_malformed, arrays == 64);
  }
}

void NoMemory() {
  MemoryLedger ledger(4096);
  DecodedKvBatch batch(ledger);
  const Pack payload = BatchOf({StoredWith("token_ids", Tokens(100000))});
  DecodeKvBatch(payload.bytes(), batch);
  CHECK(batch.is_malformed && batch.is_out_of_memory);
  CHECK_EQ(batch.events.size(), 0u);
}

void ChangedBytes() {
  Random random(11);
  Decoder decode;
  const std::array vectors{FromHex(kVectorArrays), FromHex(kVectorMaps), FromHex(kVectorFull)};
  for (int run = 0; run < 200000; ++run) {
    std::vector<std::byte> bytes;
    if (run % 2 == 0) {
      bytes = vectors[random.Below(3)];
      for (std::uint32_t change = random.Below(5); change > 0; --change)
        bytes[random.Below(static_cast<std::uint32_t>(bytes.size()))] = static_cast<std::byte>(random.Below(256));
    } else {
      bytes.resize(random.Below(100));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    }
    decode(bytes);
    if (decode.batch.is_malformed) CHECK_EQ(decode.batch.events.size(), 0u);
    for (std::uint32_t at = 0; at < decode.batch.events.size(); ++at) {
      const KvEvent& event = decode.batch.events[at];
      CHECK(event.hash_begin + event.hash_count <= decode.batch.hashes.size());
      CHECK(event.token_begin + event.token_count <= decode.batch.tokens.size());
    }
  }
}

}  // namespace

void DecoderTests() {
  RunAll(std::array{
      Test{"the wire vectors decode", WireVectors},
      Test{"arrays and maps mix freely, as batches and as events", Shapes},
      Test{"array events decode at any length", Lengths},
      Test{"fields come in any order, strange ones between them, the last of two counts", AnyOrder},
      Test{"a byte string stands for the integer of its last 8 bytes", ByteHashes},
      Test{"tokens of every width decode", TokenWidths},
      Test{"runs of plain tokens are read alike in every way, up to what is none", PlainRuns},
      Test{"media and locality name the tier", Places},
      Test{"unknown tags are counted and passed over", UnknownTags},
      Test{"an event with unusable fields is counted and its neighbours stand", BadEvents},
      Test{"fields that a tag does not have cannot spoil its event", ForeignFields},
      Test{"a payload that is cut off or no batch is malformed as a whole", Malformed},
      Test{"nesting is bounded", Depth},
      Test{"a batch without memory is read as malformed and says why", NoMemory},
      Test{"changed and random bytes never break anything", ChangedBytes},
  });
}

}  // namespace infera::testing
