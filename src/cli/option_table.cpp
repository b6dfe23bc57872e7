// SPDX-License-Identifier: Apache-2.0
#include "cli/option_table.hpp"

#include <algorithm>
#include <array>

namespace preload::cli {
namespace {

constexpr std::string_view kModelCommands = "serve plan key bench doctor tune";
constexpr std::string_view kLocalCommands = "status wait attach verify release stop";

constexpr auto kOptions = std::to_array<OptionSpec>({
    // What selects bytes and layout.
    {"model", "", "DIR_OR_HF_ID", kModelCommands,
     "checkpoint directory, or a hub id that the local hub cache holds"},
    {"tensor-parallel-size", "tp", "N", kModelCommands, "ranks that share each layer [1]"},
    {"pipeline-parallel-size", "pp", "N", kModelCommands, "stages that share the layers [1]"},
    {"data-parallel-size", "dp", "N", kModelCommands, "replicas [ranks / (tp * pp)]"},
    {"pipeline-layers", "", "LIST", kModelCommands,
     "layers of each stage, e.g. 10,11,11 [as even as can be, as vLLM splits them]"},
    {"enable-expert-parallel", "ep", "", kModelCommands,
     "spread whole experts over the dp * tp ranks of a stage instead of slicing each"},
    {"expert-placement-strategy", "", "NAME", kModelCommands,
     "linear (neighbours) or round_robin, where vLLM has it [linear]"},
    {"all2all-backend", "", "NAME", kModelCommands,
     "vLLM's all-to-all backend of expert parallelism, which decides whether shared experts are "
     "sliced [allgather_reducescatter]"},
    {"kernel-config", "", "JSON", kModelCommands,
     "as vLLM takes it: \"moe_backend\" decides the shapes of MXFP4 experts in layout vllm (cpu "
     "for "
     "engines on CPUs); --kernel-config.KEY VALUE sets one key"},
    {"kv-cache-dtype", "", "TYPE", kModelCommands,
     "type of the engine's KV cache, as vLLM takes it; engines match only with the same [auto]"},
    {"dtype", "", "TYPE", kModelCommands,
     "auto, float16 (half), bfloat16 or float32 (float); auto is the config's type in the "
     "layouts vllm and transformers and the stored types in hf [auto]"},
    {"layout", "", "NAME", kModelCommands,
     "vllm (fused, the engine's names), hf (names as stored) or transformers (what from_pretrained "
     "of transformers 5 holds, unsplit) [vllm]"},
    {"hf-overrides", "", "JSON", kModelCommands,
     "object laid over config.json; --hf-overrides.KEY VALUE sets one key"},
    {"speculative-config", "sc", "JSON", "serve plan key",
     "as vLLM takes it: MTP layers, EAGLE and EAGLE3 drafts are held beside the target, in the "
     "role "
     "draft; --speculative-config.KEY VALUE sets one key"},
    {"revision", "", "NAME", kModelCommands, "revision of a hub id [main]"},
    {"load-format", "", "FORMAT", kModelCommands, "auto or safetensors [auto]"},
    {"rebuild-index", "", "", kModelCommands,
     "take the tensors from the files' headers when the index is stale"},
    {"ignore-tensor", "", "GLOB", kModelCommands,
     "leave checkpoint tensors of this name alone (* and ?); may be repeated", true},
    // What a daemon does with them.
    {"device", "", "KIND", "serve bench plan doctor",
     "cuda or host [cuda where there is a GPU, else host; plan: cuda]"},
    {"export", "", "KIND", "serve", "handles for clients on cuda: vmm or cuda-ipc [vmm]"},
    {"ring-bytes", "", "SIZE", "serve bench", "host bounce memory of a rank, e.g. 256M [512M]"},
    {"reader", "", "HOW", "serve bench",
     "auto, pread, mmap, direct or uring (direct, several requests in flight a thread) [auto: "
     "pread "
     "where the files are in the page cache or on a network, else direct]"},
    {"spread", "", "WHEN", "serve plan",
     "what several ranks need is read once and handed on, within nodes and between them: auto, "
     "always "
     "or never [auto: where that is faster]"},
    {"nccl-library", "", "FILE", "serve tune doctor",
     "the NCCL by which GPUs that cannot map each other's memory exchange weights, and which is "
     "tuned: the one that the engine will load [libnccl.so.2]"},
    {"reader-threads", "", "N", "serve bench", "reading threads of a rank [by its CPUs]"},
    {"reads-in-flight", "", "N", "serve",
     "reads in flight of a node on one file system, shared out among its ranks [32 on network file "
     "systems, any number on others]"},
    {"replace", "", "", "serve",
     "take the place of the daemons that run there, which serve until this job does; the same "
     "weights are taken over, others loaded beside them"},
    {"drain", "", "SECONDS", "serve",
     "with --replace: where others do not fit beside them, let the old weights go first, when "
     "their "
     "clients have, and wait for these so long"},
    {"keeper", "", "WHEN", "serve",
     "deposit what is served in the directory's keeper, which has it for a successor: auto (if one "
     "runs), require or off [auto]"},
    {"lease-wait", "", "SECONDS", "serve",
     "how long open leases may go on when the daemon is told to end [5]"},
    // The warm-up.
    {"disable-autotune", "", "", "serve", "do not tune NCCL's collectives before READY"},
    {"disable-flashinfer-autotune", "", "", "serve", "the same, by vLLM's name"},
    {"autotune-budget", "", "SECONDS", "serve tune",
     "how long tuning may take; messages that are not reached keep NCCL's own choice [60]"},
    {"max-num-batched-tokens", "", "N", "serve tune",
     "the most tokens of an engine's step, as vLLM takes it: sizes of messages up to it are tuned "
     "[8192]"},
    {"warmup-exec", "", "COMMAND", "serve",
     "before READY, run this by /bin/sh against what was loaded, so that an engine tunes and "
     "compiles ahead: it finds the daemon's private socket, and directories for what it leaves, in "
     "its environment"},
    {"warmup-exec-scope", "", "SCOPE", "serve",
     "who runs it: every rank, or the first of each replica for an engine that starts its own "
     "workers: rank or replica [rank]"},
    {"warmup-exec-timeout", "", "SECONDS", "serve",
     "when it is ended, with all that it started [1800]"},
    {"warmup-required", "", "", "serve",
     "end the job when it fails [it is reported, and the job serves]"},
    {"warmup-exec-always", "", "", "serve",
     "run it also where what it left at an earlier start is at hand"},
    {"warmup-cache-dir", "", "DIR", "serve",
     "where engines keep what they tune and compile, for them and their successors [below the "
     "cache "
     "root, by configuration]"},
    {"weight-cache-health-port", "", "PORT", "serve",
     "TCP port of each node's /health and /metrics; 0 is none [0]"},
    {"weight-cache-health-host", "", "ADDRESS", "serve",
     "where they listen: 0.0.0.0 is every interface [127.0.0.1]"},
    {"log-level", "", "LEVEL", "serve keeper tune",
     "debug, info, warn, error or off [$PRELOAD_LOG_LEVEL, else info]"},
    // Where daemons and clients meet, and which daemons are meant.
    {"weight-cache-socket-dir", "", "DIR",
     "serve keeper status wait attach verify release stop doctor",
     "directory of the sockets [$PRELOAD_SOCKET_DIR, else /tmp/preload-<uid>]"},
    {"allow-uid", "", "UID", "serve keeper status wait attach verify release stop doctor",
     "user id to trust at the other end besides ours and root: a daemon's clients, a client's "
     "daemons; may be repeated [$PRELOAD_ALLOW_UIDS]",
     true},
    {"slot", "", "NAME", "serve status wait attach verify release stop",
     "one of several daemons of a GPU: a-z, 0-9 and '-', at most 32 characters"},
    {"gpu", "", "UUID|INDEX|host:N", kLocalCommands, "only the daemon of this device"},
    {"role", "", "ROLE", "status wait attach verify release stop key",
     "target or draft [attach without --all, key: target; others: both]"},
    {"timeout", "", "SECONDS", kLocalCommands, "how long to wait at most"},
    {"job", "", "ID", "wait", "wait for this job [the newest]"},
    {"keeper", "", "", "stop", "end the directory's keeper, too, with all that it keeps"},
    {"job", "", "", "stop", "end the whole job, also its ranks on other nodes"},
    {"all", "", "", "attach", "every local daemon"},
    {"dump", "", "DIR", "attach", "write what is attached to DIR/rank<global>….safetensors"},
    {"expect", "", "JSON", "attach",
     "what must be served: {\"key\": HEX, \"fields\": {NAME: VALUE}, …}; --expect.fields.NAME "
     "VALUE "
     "sets one"},
    {"expect-model", "", "DIR_OR_HF_ID", "attach",
     "what must be served is this checkpoint, by the target unless --role says draft: its files "
     "are "
     "compared with what was loaded"},
    {"trust-sample", "", "", "attach",
     "with --expect-model: a few KiB of each file are enough evidence, where nothing better is "
     "known "
     "without reading all of them"},
    {"tensors", "", "", "attach", "list the tensors in the JSON"},
    {"against", "", "DIR", "verify",
     "compare with the checkpoint in DIR itself; of a draft with a checkpoint of its own under "
     "--role "
     "draft"},
    {"force", "", "", "release", "release now, open leases or not"},
    // Keeping.
    {"stay", "", "", "keeper", "do not end for want of anything to keep, and keep it for ever"},
    {"idle-timeout", "", "SECONDS", "keeper", "end when nothing was kept for that long [60]"},
    {"orphan-timeout", "", "SECONDS", "keeper",
     "let go of what no daemon has had and no client has leased for that long [600; with --stay: "
     "never]"},
    // Planning.
    {"ranks", "", "N", "plan", "ranks to plan for"},
    {"nodes", "", "K", "plan", "nodes they are spread over [1]"},
    {"rank", "", "R", "plan key bench", "this rank only [plan: all, others: 0]"},
    {"summary", "", "", "plan", "leave the tensors out"},
    {"disk-rate", "", "GB/S", "plan", "what a node reads of the files, all ranks together [10]"},
    {"pcie-rate", "", "GB/S", "plan", "from host memory to one GPU [55]"},
    {"nvlink-rate", "", "GB/S", "plan", "from one GPU to others of its node [300]"},
    {"network-rate", "", "GB/S", "plan",
     "from one host to others, all its adapters together; nodes may then read for each other [50 "
     "with "
     "--spread always, else they do not]"},
    {"shared-files", "", "", "plan",
     "the disk rate is that of a file server which all nodes share"},
    // What warm-ups left.
    {"kind", "", "KIND", "artifacts",
     "only those of a kind, e.g. nccl_tuner, flashinfer_autotune or compile_cache"},
    {"key", "", "KEY", "artifacts", "only this one; may be repeated", true},
    {"unused", "", "AGE", "artifacts", "prune: what was not used for that long, e.g. 30d or 12h"},
    {"max-bytes", "", "SIZE", "artifacts",
     "prune: the longest unused, until the rest is no larger, e.g. 10G"},
    {"all", "", "", "artifacts", "prune: everything that --kind and --key choose"},
    // Measuring.
    {"hot", "", "", "bench", "with the files in the page cache; the default"},
    {"cold", "", "", "bench", "drop the page cache before each run; needs root"},
    {"runs", "", "N", "bench", "timed runs, of which the median counts [5]"},
    {"peers", "", "NAMES", "bench",
     "time these loaders on the same files: some of safetensors, fastsafetensors, "
     "runai_model_streamer and instanttensor, with commas between, or auto (all) or none; by "
     "$PRELOAD_PYTHON, else python3 [auto]"},
    {"json", "", "", "plan key status wait attach verify release stop bench doctor tune artifacts",
     "print JSON"},
});

constexpr auto kCommands = std::to_array<CommandSpec>({
    {"serve", "", "load the model's weights and serve them; under srun or mpirun one rank a GPU"},
    {"plan", "", "show what each rank would hold and read; needs no GPU and no MPI"},
    {"status", "", "list the local daemons"},
    {"wait", "", "wait until the local daemons of a job are ready"},
    {"attach", "", "map what a local daemon serves and show it"},
    {"verify", "", "recompute every tensor's hash where it lies"},
    {"key", "DIR", "print the key and the checkpoint's id"},
    {"release", "", "let go of the weights when the last lease ends"},
    {"stop", "", "end the local daemons"},
    {"keeper", "", "hold weights and leases across restarts of the directory's daemons"},
    {"tune", "",
     "tune NCCL's collectives for a model under srun or mpirun; alone, show what was found"},
    {"artifacts", "list|show|check|prune",
     "look at what warm-ups left on disk for later jobs, and tidy it up"},
    {"bench", "load",
     "time a load beside the limit measured in the same run, and beside other loaders"},
    {"doctor", "",
     "look at GPUs, launcher, limits and directories, and say what to do about what is not right"},
});

constexpr std::string_view kBecauseNodes = "the launcher spreads the ranks over the nodes";
constexpr std::string_view kBecauseMeet = "the launcher makes the ranks find each other";
constexpr std::string_view kBecauseDp = "replicas follow from --data-parallel-size and the rank";
constexpr auto kReplaced = std::to_array<ReplacedFlag>({
    {"nnodes", kBecauseNodes, "1"},
    {"node-rank", kBecauseNodes, "0"},
    {"master-addr", kBecauseMeet},
    {"master-port", kBecauseMeet},
    {"weight-cache-master-port", kBecauseMeet},
    {"weight-cache-draft-master-port", kBecauseMeet},
    {"data-parallel-size-local", kBecauseDp},
    {"data-parallel-start-rank", kBecauseDp},
    {"data-parallel-address", kBecauseMeet},
});

}  // namespace

std::span<const OptionSpec> option_table() noexcept { return kOptions; }
std::span<const CommandSpec> command_table() noexcept { return kCommands; }
std::span<const ReplacedFlag> replaced_flags() noexcept { return kReplaced; }

const CommandSpec* find_command(std::string_view name) noexcept {
  const auto at = std::ranges::find(kCommands, name, &CommandSpec::name);
  return at == kCommands.end() ? nullptr : &*at;
}

bool takes(const OptionSpec& option, std::string_view command) noexcept {
  std::string_view rest = option.commands;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == command) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

}  // namespace preload::cli
