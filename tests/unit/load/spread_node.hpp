// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/loader.hpp"
#include "load/rounds.hpp"
#include "plan/shared_reads.hpp"
#include "plan/source_hashes.hpp"
#include "plan/spread_choice.hpp"
#include "unit/load/random_load.hpp"
#include "unit/load/thread_exchange.hpp"
#include "unit/model/fixture.hpp"
#include "unit/plan/rank_plans.hpp"

namespace preload::test {

// A checkpoint of the fixtures, with files: bytes by the fixtures' rule, no headers.
struct WrittenCheckpoint {
  TempDir directory;
  Checkpoint checkpoint;

  explicit WrittenCheckpoint(Checkpoint of) : checkpoint(std::move(of)) {
    std::vector<std::string> files;
    for (const SourceFile& file : checkpoint.files) files.emplace_back(file.bytes, '\0');
    for (const SourceTensor& tensor : checkpoint.tensors) {
      const Bytes bytes = rule_bytes(tensor);
      std::memcpy(files[tensor.file].data() + tensor.offset, bytes.data(), bytes.size());
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string name = checkpoint.files[i].name;
      directory.write(name, files[i]);
      checkpoint.files[i] = describe_file(directory, name);
    }
    checkpoint.directory = directory.path();
  }
};

// The ranks of a spread group as threads of this process: each has slabs of its own, which the
// others write, or send it messages for.
class Node {
 public:
  Node(const Checkpoint& checkpoint, RankPlans ranks, HandleKind kind = HandleKind::kHost,
       MemoryAccess access = {})
      : checkpoint_(checkpoint), ranks_(std::move(ranks)), kind_(kind), access_(std::move(access)) {
    for (const LoadPlan& plan : ranks_.plans) {
      memory_.push_back(allocate_slabs(kind_, plan.slabs.slabs, kDevice));
    }
    results_.resize(ranks_.plans.size());
  }

  // Ranks share a node with those of the same number / `per_node`; 0: all of them.
  void load_spread(LoadOptions options, std::uint32_t per_node = 0) {
    per_node_ = per_node;
    // No rank may hand anything on before the others have filled what needs filling.
    std::barrier ready(static_cast<std::ptrdiff_t>(ranks_.plans.size()));
    options.before_reading = [&] { ready.arrive_and_wait(); };
    reads_ = plan_node_reads(ranks_.held(), Spread::kAlways, usual_rates(false, false));
    std::vector<std::jthread> ranks;
    for (std::size_t i = 0; i < ranks_.plans.size(); ++i) {
      ranks.emplace_back([&, i] {
        LoadProgress progress;
        const Peers peers(*this, i);
        ThreadExchange exchange(office_, static_cast<std::uint32_t>(i), access_);
        const LoadMessages messages = messages_of(i, exchange, options);
        results_[i] =
            load(work(i, &peers, per_node == 0 ? nullptr : &messages), options, progress, Cancel());
        EXPECT_EQ(progress.bytes, reads_[i].read_bytes);
      });
    }
  }

  void finish(std::size_t rank) {
    std::vector<GivenHash> received;
    for (const LoadResult& result : results_) {
      for (const GivenHash& given : decode_given(encode_given(result.given))) {
        if (given.owner == rank) received.push_back(given);
      }
    }
    finish_load(results_[rank], work(rank, nullptr, nullptr), received, {.device = kDevice},
                Cancel());
  }

  void expect_like_ranks_that_read_alone() {
    std::vector<SourceRegion> together;
    std::vector<SourceRegion> apart;
    for (std::size_t i = 0; i < ranks_.plans.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "rank " << i);
      const auto alone = allocate_slabs(kind_, ranks_.plans[i].slabs.slabs, kDevice);
      LoadProgress progress;
      const LoadResult expected = load_alone(ranks_.plans[i], ranks_.programs[i], checkpoint_,
                                             *alone, {.device = kDevice}, progress, Cancel());
      for (std::size_t t = 0; t < ranks_.programs[i].tensors.size(); ++t) {
        const Placement& place = ranks_.plans[i].slabs.placements[t];
        if (place.bytes == 0) continue;
        EXPECT_TRUE(access_.read(memory_[i]->address(place.slab) + place.offset, place.bytes) ==
                    access_.read(alone->address(place.slab) + place.offset, place.bytes))
            << ranks_.programs[i].tensors[t].name << " differs";
      }
      EXPECT_EQ(results_[i].served, expected.served);
      together.insert(together.end(), results_[i].sources.begin(), results_[i].sources.end());
      apart.insert(apart.end(), expected.sources.begin(), expected.sources.end());
    }
    const CombinedHashes found = combine_regions(checkpoint_, together);
    EXPECT_EQ(found.hashes, combine_regions(checkpoint_, apart).hashes);
  }

  SlabMemory& memory(std::size_t rank) { return *memory_[rank]; }
  const LoadPlan& plan(std::size_t rank) const { return ranks_.plans[rank]; }
  const ReadPlan& reads(std::size_t rank) const { return reads_[rank]; }

 private:
  static constexpr int kDevice = 0;

  bool by_message(std::size_t from, std::size_t to) const noexcept {
    return per_node_ != 0 && from / per_node_ != to / per_node_;
  }

  LoadMessages messages_of(std::size_t self, RankExchange& exchange,
                           const LoadOptions& options) const {
    std::size_t most_givers = 0;
    for (const ReadPlan& plan : reads_) most_givers = std::max(most_givers, plan.givers.size());
    LoadMessages messages{exchange, plan_incoming(reads_, static_cast<std::uint32_t>(self)),
                          round_bytes(most_givers, options.ring_bytes)};
    std::erase_if(messages.incoming,
                  [&](const ReadPlan& plan) { return !by_message(plan.self, self); });
    return messages;
  }

  // The others' memory, mapped as another process would map it.
  class Peers final : public PeerSlabs {
   public:
    Peers(const Node& node, std::size_t self) {
      for (const std::uint32_t rank : node.reads_[self].receivers) {
        if (node.by_message(self, rank)) continue;
        mapped_[rank] = map_peer_slabs(node.kind_, node.ranks_.plans[rank].slabs.slabs,
                                       node.memory_[rank]->share(), kDevice);
      }
    }
    std::byte* address(std::uint32_t rank, std::uint32_t slab) const noexcept override {
      const auto at = mapped_.find(rank);
      return at == mapped_.end() ? nullptr : at->second->address(slab);
    }

   private:
    std::map<std::uint32_t, std::unique_ptr<MappedSlabs>> mapped_;
  };

  LoadWork work(std::size_t rank, const PeerSlabs* peers, const LoadMessages* messages) const {
    return {ranks_.plans[rank],
            ranks_.programs[rank],
            checkpoint_,
            reads_[rank],
            *memory_[rank],
            peers,
            messages};
  }

  const Checkpoint& checkpoint_;
  const RankPlans ranks_;
  std::vector<std::unique_ptr<SlabMemory>> memory_;
  std::vector<ReadPlan> reads_;
  std::vector<LoadResult> results_;
  const HandleKind kind_;
  const MemoryAccess access_;
  PostOffice office_;
  std::uint32_t per_node_ = 0;
};

}  // namespace preload::test
