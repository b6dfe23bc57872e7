// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "load/loader.hpp"
#include "model/layout.hpp"
#include "plan/source_hashes.hpp"
#include "plan/spread_choice.hpp"
#include "unit/load/random_load.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;

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

// The ranks of a node as threads of this process: each has slabs of its own, which the others
// write.
class Node {
 public:
  Node(const Checkpoint& checkpoint, std::vector<CopyProgram> programs, std::vector<LoadPlan> plans)
      : checkpoint_(checkpoint), programs_(std::move(programs)), plans_(std::move(plans)) {
    for (const LoadPlan& plan : plans_) {
      memory_.push_back(allocate_slabs(HandleKind::kHost, plan.slabs.slabs, -1));
    }
    results_.resize(plans_.size());
  }

  void load_spread(LoadOptions options) {
    // No rank may hand anything on before the others have filled what needs filling.
    std::barrier ready(static_cast<std::ptrdiff_t>(plans_.size()));
    options.before_reading = [&] { ready.arrive_and_wait(); };
    std::vector<std::vector<HeldRows>> members;
    for (std::uint32_t i = 0; i < plans_.size(); ++i) {
      members.push_back(held_rows(programs_[i], plans_[i], i));
    }
    reads_ = plan_node_reads(members, Spread::kAlways, usual_rates(false, false));
    std::vector<std::jthread> ranks;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      ranks.emplace_back([&, i] {
        LoadProgress progress;
        results_[i] = load(work(i), options, progress, Cancel());
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
    finish_load(results_[rank], work(rank), received, {}, Cancel());
  }

  void expect_like_ranks_that_read_alone() {
    std::vector<SourceRegion> together;
    std::vector<SourceRegion> apart;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "rank " << i);
      const auto alone = allocate_slabs(HandleKind::kHost, plans_[i].slabs.slabs, -1);
      LoadProgress progress;
      const LoadResult expected =
          load_alone(plans_[i], programs_[i], checkpoint_, *alone, {}, progress, Cancel());
      for (std::uint32_t slab = 0; slab < plans_[i].slabs.slabs.size(); ++slab) {
        EXPECT_EQ(std::memcmp(memory_[i]->address(slab), alone->address(slab),
                              plans_[i].slabs.slabs[slab].bytes),
                  0);
      }
      EXPECT_EQ(results_[i].served, expected.served);
      together.insert(together.end(), results_[i].sources.begin(), results_[i].sources.end());
      apart.insert(apart.end(), expected.sources.begin(), expected.sources.end());
    }
    const CombinedHashes found = combine_regions(checkpoint_, together);
    EXPECT_EQ(found.hashes, combine_regions(checkpoint_, apart).hashes);
  }

  SlabMemory& memory(std::size_t rank) { return *memory_[rank]; }
  const LoadPlan& plan(std::size_t rank) const { return plans_[rank]; }
  const ReadPlan& reads(std::size_t rank) const { return reads_[rank]; }

 private:
  class Peers final : public PeerSlabs {
   public:
    explicit Peers(const Node& node) : node_(node) {}
    std::byte* address(std::uint32_t rank, std::uint32_t slab) const noexcept override {
      return node_.memory_[rank]->address(slab);
    }

   private:
    const Node& node_;
  };

  LoadWork work(std::size_t rank) const {
    return {plans_[rank], programs_[rank], checkpoint_, reads_[rank], *memory_[rank], &peers_};
  }

  const Checkpoint& checkpoint_;
  std::vector<CopyProgram> programs_;
  std::vector<LoadPlan> plans_;
  std::vector<std::unique_ptr<SlabMemory>> memory_;
  std::vector<ReadPlan> reads_;
  std::vector<LoadResult> results_;
  const Peers peers_{*this};
};

TEST(SpreadLoad, GivesReplicasTheSameForEveryKindOfMove) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    for (const std::size_t ranks : {2U, 3U}) {
      Node node(random.checkpoint, std::vector<CopyProgram>(ranks, random.program),
                std::vector<LoadPlan>(ranks, random.plan));
      node.load_spread({.threads = 3});
      for (std::size_t i = 0; i < ranks; ++i) node.finish(i);
      node.expect_like_ranks_that_read_alone();
    }
  }
}

TEST(SpreadLoad, GivesTensorParallelRanksTheirSlices) {
  for (const int tp : {2, 4}) {
    const WrittenCheckpoint written(llama_checkpoint({}));
    const ParallelSizes sizes{2, 1, tp};
    std::vector<CopyProgram> programs;
    std::vector<LoadPlan> plans;
    for (int rank = 0; rank < sizes.world(); ++rank) {
      programs.push_back(make_program(written.checkpoint,
                                      parse_model_spec(written.checkpoint.config_json, ""),
                                      LayoutRequest{}, sizes, coords_of(rank, sizes)));
      plans.push_back(plan_load(programs.back(), written.checkpoint));
    }
    Node node(written.checkpoint, std::move(programs), std::move(plans));
    node.load_spread({.threads = 2});
    for (int i = 0; i < sizes.world(); ++i) node.finish(static_cast<std::size_t>(i));
    node.expect_like_ranks_that_read_alone();
  }
}

TEST(SpreadLoad, NamesATensorThatDidNotArrive) {
  const RandomLoad random(3);
  Node node(random.checkpoint, {random.program, random.program}, {random.plan, random.plan});
  node.load_spread({});
  node.finish(0);
  // A byte that the other rank wrote is lost.
  for (const ReadBlock& block : node.reads(0).blocks) {
    for (const Delivery& delivery : node.reads(0).deliveries_of(block)) {
      if (delivery.owner != 1 || !delivery.hashed) continue;
      std::byte* const lost = node.memory(1).address(delivery.slab) + delivery.slab_offset;
      *lost ^= std::byte{1};
      try {
        node.finish(1);
        FAIL() << "a wrong byte was not noticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::kDevice);
        EXPECT_THAT(error.what(), HasSubstr(random.program.tensors[delivery.tensor].name));
        EXPECT_THAT(error.what(), HasSubstr("--spread never"));
      }
      return;
    }
  }
  FAIL() << "nothing was handed on";
}

}  // namespace
}  // namespace preload::test
