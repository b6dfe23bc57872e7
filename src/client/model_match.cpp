// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "client/expectation.hpp"
#include "load/consumed_hashes.hpp"
#include "model/layout.hpp"
#include "plan/key.hpp"
#include "plan/shard_description.hpp"
#include "serve/expectation.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

using Mismatches = std::map<std::string, wire::FieldMismatch>;

class ModelComparison {
 public:
  ModelComparison(const Expectation& expect, const wire::DescribeReply& served)
      : expect_(expect), served_(served), checkpoint_(open_checkpoint(expect.model, options())) {
    if (served.shard_json.empty()) {
      throw Error(Errc::kProtocol,
                  fmt::format("the daemon for {} does not say how it planned its shard: it is of "
                              "an older release; start it again, or expect its key",
                              served.gpu_uuid));
    }
    shard_ = shard_from_json(served.shard_json);
  }

  ModelMatch run() {
    compare_fields();
    return {served_.key, compare_bytes()};
  }

 private:
  OpenOptions options() const {
    OpenOptions options;
    options.revision = expect_.revision;
    return options;
  }

  [[noreturn]] void refuse(Mismatches fields) const {
    wire::ErrorReply reply;
    reply.code = Errc::kMismatch;
    reply.message = fmt::format("{} of the daemon for {} is not {}: {}", served_.model,
                                served_.gpu_uuid, checkpoint_.directory, mismatch_text(fields));
    reply.fields = std::move(fields);
    throw wire::PeerError(std::move(reply));
  }

  void plan(const ModelSpec& spec) try {
    program_ = make_program(checkpoint_, spec, shard_.request, shard_.sizes, shard_.rank);
  } catch (const Error& error) {
    if (error.code() != Errc::kModel) throw;
    refuse({{"checkpoint",
             {fmt::format("one that cannot be laid out like this: {}", error.what()),
              served_.checkpoint}}});
  }

  // All but the bytes, from the headers and the config.
  void compare_fields() {
    const ModelSpec spec = layout_spec(checkpoint_, shard_.request, shard_.hf_overrides);
    const auto architecture = served_.fields.find("architecture");
    if (architecture != served_.fields.end() && architecture->second != spec.architecture) {
      refuse({{"architecture", {spec.architecture, architecture->second}}});
    }
    plan(spec);
    Mismatches mismatches;
    for (const auto& [name, expected] : key_fields(spec, shard_.request, program_, shard_.sizes,
                                                   shard_.rank, served_.checkpoint)) {
      const auto field = served_.fields.find(name);
      if (field == served_.fields.end()) {
        mismatches[name] = {expected, std::nullopt};
      } else if (field->second != expected) {
        mismatches[name] = {expected, field->second};
      }
    }
    if (!mismatches.empty()) refuse(std::move(mismatches));
  }

  Evidence compare_bytes() {
    Receipt theirs;
    if (!served_.receipt_json.empty()) theirs = receipt_from_json(served_.receipt_json);
    Receipt ours = take_receipt(checkpoint_);
    if (same_files(ours, theirs)) return Evidence::kReceipt;
    const ConsumedHashes hashes = recall_consumed(checkpoint_, program_);
    if (hashes.missing.empty()) return compare_hashes(hashes.known);
    add_samples(ours, checkpoint_, consumed_sources(checkpoint_, program_));
    if (const auto names = differing_files(ours, theirs); !names.empty()) {
      refuse({{"checkpoint",
               {fmt::format("other bytes in {}", fmt::join(names, ", ")), served_.checkpoint}}});
    }
    if (expect_.trust_sample && same_samples(ours, theirs)) return Evidence::kSample;
    return compare_hashes(consumed_hashes(checkpoint_, program_));
  }

  Evidence compare_hashes(const std::vector<SourceHash>& hashes) const {
    const std::string id = checkpoint_id(checkpoint_, hashes);
    if (id != served_.checkpoint) refuse({{"checkpoint", {id, served_.checkpoint}}});
    return Evidence::kHash;
  }

  const Expectation& expect_;
  const wire::DescribeReply& served_;
  const Checkpoint checkpoint_;
  ShardDescription shard_;
  CopyProgram program_;
};

}  // namespace

ModelMatch match_model(const Expectation& expect, const wire::DescribeReply& served) {
  return ModelComparison(expect, served).run();
}

}  // namespace preload::client
