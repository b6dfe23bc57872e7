// SPDX-License-Identifier: Apache-2.0
#include "unit/tuner/sample_table.hpp"

namespace preload::test {

using namespace tuner;

std::string sample_text() {
  return R"({
    "format": "preload-nccl-tuning", "version": 1, "nccl_version": "2.28.3",
    "topology": {"gpus": ["Fake GPU 3"], "ranks": 8, "nodes": 1, "ranks_per_node": 8},
    "margin": 0.05,
    "communicators": [{"ranks": 8, "nodes": 1}, {"ranks": 4, "nodes": 1}],
    "entries": [
      {"collective": "allgather", "min_bytes": 0, "max_bytes": 4096, "measured_bytes": 4096,
       "ranks": 4, "nodes": 1, "registered_buffers": true, "pipelined_ops": 1,
       "offered": ["ring/simple", "pat/simple"],
       "own": {"algorithm": "ring", "protocol": "simple", "channels": 0, "microseconds": 9.0},
       "chosen": {"algorithm": "pat", "protocol": "simple", "channels": 0, "microseconds": 6.0},
       "gain": 0.5},
      {"collective": "allreduce", "min_bytes": 1024, "max_bytes": 65536, "measured_bytes": 8192,
       "ranks": 8, "nodes": 1, "registered_buffers": false, "pipelined_ops": 1,
       "offered": ["tree/ll", "ring/ll", "ring/simple", "nvls/simple"],
       "own": {"algorithm": "ring", "protocol": "ll", "channels": 0, "microseconds": 12.5},
       "chosen": {"algorithm": "nvls", "protocol": "simple", "channels": 16, "microseconds": 10.0},
       "gain": 0.25},
      {"collective": "allreduce", "min_bytes": 65537, "max_bytes": 1048576,
       "measured_bytes": 524288, "ranks": 8, "nodes": 1, "registered_buffers": false,
       "pipelined_ops": 1, "offered": ["tree/ll", "ring/ll", "ring/simple", "nvls/simple"],
       "own": {"algorithm": "nvls", "protocol": "simple", "channels": 0, "microseconds": 30.0},
       "chosen": {"algorithm": "tree", "protocol": "ll", "channels": 0, "microseconds": 20.0},
       "gain": 0.5},
      {"collective": "allreduce", "min_bytes": 1048577, "max_bytes": 16777216,
       "measured_bytes": 16777216, "ranks": 8, "nodes": 1, "registered_buffers": false,
       "pipelined_ops": 1, "offered": ["tree/ll", "ring/ll", "ring/simple", "nvls/simple"],
       "own": {"algorithm": "nvls", "protocol": "simple", "channels": 0, "microseconds": 90.0},
       "chosen": null, "gain": 0.0}
    ]})";
}

TuningTable sample_table() {
  const Candidate tree_ll{Algorithm::kTree, Protocol::kLl};
  const Candidate ring_ll{Algorithm::kRing, Protocol::kLl};
  const Candidate ring{Algorithm::kRing, Protocol::kSimple};
  const Candidate nvls{Algorithm::kNvls, Protocol::kSimple};
  const Candidate pat{Algorithm::kPat, Protocol::kSimple};
  const Entry all_gather{.collective = Collective::kAllGather,
                         .min_bytes = 0,
                         .max_bytes = 4096,
                         .measured_bytes = 4096,
                         .shape = {4, 1},
                         .registered_buffers = true,
                         .pipelined_ops = 1,
                         .offered = {ring, pat},
                         .own = {ring, 0, 9.0},
                         .chosen = Timing{pat, 0, 6.0}};
  const Entry small{.collective = Collective::kAllReduce,
                    .min_bytes = 1024,
                    .max_bytes = 65536,
                    .measured_bytes = 8192,
                    .shape = {8, 1},
                    .registered_buffers = false,
                    .pipelined_ops = 1,
                    .offered = {tree_ll, ring_ll, ring, nvls},
                    .own = {ring_ll, 0, 12.5},
                    .chosen = Timing{nvls, 16, 10.0}};
  Entry medium = small;
  medium.min_bytes = 65537;
  medium.max_bytes = 1048576;
  medium.measured_bytes = 524288;
  medium.own = {nvls, 0, 30.0};
  medium.chosen = Timing{tree_ll, 0, 20.0};
  Entry large = medium;
  large.min_bytes = 1048577;
  large.max_bytes = large.measured_bytes = 16777216;
  large.own.microseconds = 90.0;
  large.chosen.reset();
  return {.nccl_version = 22803,
          .topology = {.gpus = {"Fake GPU 3"}, .world = {8, 1}, .ranks_per_node = 8},
          .margin = 0.05,
          .shapes = {{8, 1}, {4, 1}},
          .entries = {all_gather, small, medium, large}};
}

}  // namespace preload::test
