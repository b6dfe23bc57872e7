// SPDX-License-Identifier: Apache-2.0
#include "manual/manual_text.hpp"

#include <array>

namespace preload::manual {
namespace {

constexpr std::string_view kOverview =
    "preload keeps the weights of a language model resident in GPU memory, so that an inference "
    "engine that restarts maps them in milliseconds instead of loading them for minutes.\n\n"
    "srun or mpirun starts one rank for each GPU. Each rank works out which part of the checkpoint "
    "it owns, loads that part once, lets go of CUDA and MPI, and serves handles to the memory over "
    "a Unix socket until it is told to stop. Engines attach by device, slot and role, and map the "
    "tensors read-only.\n\n"
    "Without a command, the options are those of preload serve. Options are named as vLLM names "
    "them where it has them; '-' and '_' in their names are alike, and the last of a repeated "
    "option counts. A flag counts before an environment variable, and that before the default.";

constexpr auto kCommandTexts = std::to_array<CommandText>({
    {"serve",
     "Loads the weights of a model and serves them to clients on the same machine. Under srun or "
     "mpirun there is one rank for each GPU; alone it is rank 0 of 1. The product of the "
     "parallel sizes must be the number of ranks.\n\n"
     "Everything that can be refused is refused before the first GPU allocation: files that are "
     "missing, truncated or not what they claim to be, tensors that no rule consumes, shapes that "
     "contradict the config, a GPU and slot that another daemon owns. When every rank serves, "
     "rank 0 writes one line that begins with 'preload: READY'. From then on a rank has neither "
     "a CUDA context nor MPI: it holds file descriptors.\n\n"
     "The job ends whole: when one rank fails, every rank ends with that rank's status. TERM and "
     "INT end it in order: no client is admitted any more, sockets are unlinked, memory is freed."},
    {"plan",
     "Shows what each rank of a job would hold, read and be handed by others, and how long that "
     "takes at given rates. Reads the checkpoint's headers alone and needs neither a GPU nor MPI: "
     "it runs on login nodes and laptops, and takes the model's flags as serve does."},
    {"status",
     "Lists the daemons of the socket directory: device, slot, role, job, state, model, key, "
     "bytes, leases and generation; also of ranks that still load, and of those that failed.\n\n"
     "The states are LOADING, READY, DRAINING, RELEASED, FAILED and ORPHANED."},
    {"wait",
     "Waits until as many local daemons of a job are READY as the job announces on this machine: "
     "the newest job, unless another is named. Returns at once when the job fails, with the "
     "failed rank's status and its message. Without --timeout it waits 600 s, and 30 s for "
     "a job to appear at all."},
    {"attach",
     "Maps what a local daemon serves, as an engine does, times it and prints the tensors. With "
     "several daemons, --gpu, --slot and --role choose one, --all takes every one. What the client "
     "expects (a checkpoint, a key, fields of a key) is compared before anything is mapped."},
    {"verify",
     "Recomputes the hash of every tensor where it lies and compares it with the one recorded at "
     "load. With --against, compares with the tensors of the checkpoint itself, through the "
     "inverse of what loading did."},
    {"key",
     "Prints the key that daemons of this model and these flags would have, and the checkpoint's "
     "id. The id follows from the tensors' contents: all files are read once, then a receipt of "
     "names, sizes and times stands for them in the cache."},
    {"release",
     "Tells daemons to let go of the weights when the last lease ends, or now with --force. The "
     "daemon goes on in state RELEASED and keeps its lock, so that nobody loads in its place; "
     "later attaches are refused with status 7."},
    {"stop",
     "Ends every daemon of the socket directory, or those that --gpu, --slot and --role choose; "
     "with --job the whole job, also its ranks on other nodes. One that still loads is stopped "
     "too. Returns when their sockets and locks are gone."},
    {"keeper",
     "Holds what daemons of the socket directory deposit: descriptors of their memory, the "
     "manifest "
     "and the leases of their clients. When a daemon dies or is replaced, memory and attached "
     "engines stay as they are, the keeper answers clients in its place (state ORPHANED), and a "
     "successor with the same key adopts everything without reading the checkpoint. serve "
     "--keeper says whether a daemon deposits.\n\n"
     "It uses neither CUDA nor MPI and is one for each machine: a Slurm step or a systemd unit of "
     "its own, so that it does not end with the job whose daemons it serves. Without --stay it "
     "ends when it has had nothing to keep for a while."},
    {"doctor",
     "Looks at what a job would meet on this machine, and says what to do about what is not right: "
     "launcher and PMI, driver against toolkit, visible GPUs, MIG, compute mode, free GPU memory "
     "and "
     "who holds it, limits, CPUs, host memory, network interfaces, socket directory, keeper, "
     "checkpoint and environment. It takes the flags that select a model as serve does, and needs "
     "no GPU, no MPI and no daemon. Under srun or mpirun each rank reports, the node's first in "
     "full.\n\n"
     "serve begins with the quick ones of these checks, on every rank."},
    {"tune",
     "Under srun or mpirun: forms the communicators that an engine of this model forms, measures "
     "its collectives with every algorithm, protocol and number of channels that NCCL offers, "
     "keeps "
     "what is faster than NCCL's own choice in a table, and prints the sweep. It loads no weights "
     "and takes the place of an earlier table; serve does the same at its first start, and finds "
     "the table at later ones.\n\n"
     "Alone: shows the sweeps that are kept, of --model where it is given; the other options then "
     "count for nothing."},
    {"artifacts",
     "Looks at what the warm-ups of earlier jobs left on disk for later ones: NCCL's tuning "
     "tables, "
     "FlashInfer's, and bundles of the directories in which engines cache what they compiled. list "
     "shows a line each; show adds what each was made under; check reads every one and compares it "
     "with what was written; prune removes those that are damaged and what crashed jobs left, and "
     "what its options choose. Jobs bound the cache themselves: past 32 GiB, what was not used for "
     "longest goes. A table that a serving job hands to its engines stays."},
    {"bench",
     "Times a load of the model beside the limit of the hardware, measured in the same run, and "
     "beside other loaders where they are installed. Every run is verified against the files."},
});

constexpr auto kExamples = std::to_array<Example>({
    {"serve", "One node with 8 GPUs, under Slurm:",
     "srun --nodes=1 --ntasks=8 --mpi=pmix preload --model /models/llama-70b -tp 8"},
    {"serve", "The same by mpirun, and on bare metal:",
     "mpirun -np 8 --bind-to none preload --model /models/llama-70b -tp 8"},
    {"serve", "Two replicas of 4 GPUs each, as vLLM's data parallelism numbers them:",
     "srun --ntasks=8 --mpi=pmix preload --model /models/mixtral -tp 4 -dp 2 "
     "--enable-expert-parallel"},
    {"serve", "A second model in the same GPU, in a slot of its own:",
     "preload serve --model /models/qwen3-8b --slot small"},
    {"plan", "What 16 ranks on two nodes would hold:",
     "preload plan --model /models/llama-70b --ranks 16 --nodes 2 -tp 8 --summary"},
    {"status", "Everything there is to know, for programs:", "preload status --json"},
    {"wait", "Start an engine when its weights are there, at most ten minutes later:",
     "preload wait --timeout 600 && vllm serve /models/llama-70b"},
    {"attach", "The tensors of the first GPU's daemon:", "preload attach --gpu 0"},
    {"attach", "Only if it holds this checkpoint:",
     "preload attach --gpu 0 --expect-model /models/llama-70b"},
    {"verify",
     "Compare what is resident with the files:", "preload verify --against /models/llama-70b"},
    {"key", "The key of rank 3 of 8:", "preload key /models/llama-70b -tp 8 --rank 3"},
    {"release", "Make room on the GPU as soon as the engine has copied the weights:",
     "preload release --gpu 0"},
    {"stop", "End the job, on every node of it:", "preload stop --job"},
    {"stop", "End everything on this machine, with what the keeper has:", "preload stop --keeper"},
    {"keeper", "Beside the daemons of a node, until it is stopped:", "preload keeper --stay"},
    {"keeper", "As a step of its own in a job, one for each node:",
     "srun --overlap --ntasks-per-node=1 preload keeper --orphan-timeout 120"},
    {"serve", "Take the place of the daemon that serves, after an upgrade or with another model:",
     "preload serve --model /models/qwen3-8b --replace"},
    {"serve", "Fail rather than serve without a keeper:",
     "preload serve --model /models/qwen3-8b --keeper require"},
    {"artifacts",
     "What there is of NCCL's tuning tables:", "preload artifacts list --kind nccl_tuner"},
    {"artifacts", "Remove what was not used for a month, and more until 10 GiB are left:",
     "preload artifacts prune --unused 30d --max-bytes 10G"},
    {"doctor", "Would this model be served here?",
     "preload doctor --model /models/llama-70b -tp 8"},
    {"doctor", "As the ranks of a job see it:",
     "srun --ntasks=8 --mpi=pmix preload doctor --model /models/llama-70b -tp 8"},
    {"tune", "Tune for the NCCL that torch brings, half a minute at most:",
     "mpirun -np 8 --bind-to none preload tune --model /models/llama-70b -tp 8 --autotune-budget "
     "30 "
     "--nccl-library /venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"},
    {"tune", "What was found, as examples/plot_tuning.py draws it:", "preload tune --json"},
    {"bench", "Without other loaders, five runs from the page cache:",
     "preload bench load --model /models/llama-8b --peers none"},
});

constexpr auto kExitStatuses = std::to_array<Entry>({
    {"0", "serve", "preload stop ended a healthy job."},
    {"0", "plan status key release bench tune artifacts", "Done."},
    {"0", "wait", "Every local daemon of the job is READY."},
    {"0", "attach", "Everything that was asked for was attached."},
    {"0", "verify", "Every tensor is what it should be."},
    {"0", "doctor", "Nothing is in the way, warnings or not."},
    {"0", "stop", "Sockets and locks are gone."},
    {"0", "keeper", "It was told to end by `preload stop --keeper`, or had nothing to keep."},
    {"1", "serve",
     "A clean end that nobody asked for, or a connection between ranks that was lost."},
    {"1", "wait", "The job ended without a word: nobody holds its lock."},
    {"1", "stop", "Some daemon was not gone within the timeout."},
    {"2",
     "serve plan status wait attach verify key release stop keeper doctor bench tune artifacts",
     "Usage: an option, an environment variable or the socket directory is wrong."},
    {"3", "serve plan key bench tune", "The checkpoint or the model is refused."},
    {"3", "artifacts", "check: an entry is damaged."},
    {"3", "attach", "The checkpoint of --expect-model cannot be read."},
    {"3", "verify", "A tensor differs; the checkpoint cannot be read."},
    {"4", "serve attach verify bench tune", "The device or its memory, or the host's."},
    {"5", "serve tune", "The launcher, MPI or NCCL."},
    {"6", "serve", "Another daemon owns the GPU and slot, or --keeper require finds no keeper."},
    {"6", "keeper", "Another keeper has the directory."},
    {"7", "wait", "No daemon is there, or they were not READY in time, or were released."},
    {"7", "attach verify release",
     "Refused: no daemon, one that is not READY, holds something else or has released."},
    {"7", "stop", "There was no daemon."},
    {"7", "tune", "Alone: no sweep is kept."},
    {"2-6", "doctor", "What serve would end with because of the first thing that is in the way."},
    {"1-7", "wait", "Otherwise: the status of the job's first failed rank."},
    {"128+n",
     "serve plan status wait attach verify key release stop keeper doctor bench tune artifacts",
     "Signal n ended it: 130 for INT, 137 for KILL, 143 for TERM."},
});

constexpr auto kVariables = std::to_array<Entry>({
    {"PRELOAD_SOCKET_DIR", "serve keeper status wait attach verify release stop doctor",
     "The socket directory, where --weight-cache-socket-dir is not given."},
    {"PRELOAD_ALLOW_UIDS", "serve keeper status wait attach verify release stop doctor",
     "User ids with commas between them, added to those of --allow-uid; client libraries and "
     "engines read it, too."},
    {"PRELOAD_CACHE_ROOT", "serve attach key bench tune artifacts",
     "Where receipts, tuning results and what warm-ups left are kept [$XDG_CACHE_HOME/preload, "
     "else "
     "~/.cache/preload]."},
    {"PRELOAD_LAUNCH_ID", "serve",
     "Hex digits that preload-srun and preload-mpirun make for each launch: rank 0's END line ends "
     "with them, by which they know it from what else the job prints."},
    {"PRELOAD_LOG_LEVEL", "serve keeper tune", "The log level, where --log-level is not given."},
    {"PRELOAD_RUNTIME", "serve bench doctor tune",
     "The executable preload-runtime, where it lies neither beside preload nor in "
     "../libexec/preload."},
    {"PRELOAD_PYTHON", "bench", "The Python that other loaders are installed for [python3]."},
    {"PRELOAD_TUNER_TABLE", "serve tune",
     "Read by engines, not by preload: the tuning table that NCCL's tuner plugin obeys, where "
     "NCCL_TUNER_PLUGIN names libnccl-tuner-preload.so."},
    {"HF_HUB_CACHE", "serve plan key bench attach doctor tune",
     "The Hugging Face hub cache, where models named by a hub id are looked for "
     "[$HF_HOME/hub, else ~/.cache/huggingface/hub]."},
    {"CUDA_VISIBLE_DEVICES", "serve attach verify doctor tune",
     "The GPUs that may be used, by index or UUID. Daemons and clients meet by a GPU's UUID, "
     "whatever index either gives it."},
    {"NOTIFY_SOCKET", "serve",
     "Where a service manager hears that the job is ready or ends, as sd_notify(3) says."},
    {"NCCL_SOCKET_IFNAME", "serve tune",
     "The interface by which NCCL connects hosts, when weights are handed on between them and when "
     "collectives are tuned."},
    {"NCCL_TUNER_PLUGIN", "serve tune",
     "NCCL's tuner plugin. Where it names another than libnccl-tuner-preload.so, that is left in "
     "place and nothing is tuned."},
});

constexpr auto kFiles = std::to_array<Entry>({
    {"/tmp/preload-<uid>/", "serve keeper status wait attach verify release stop doctor",
     "The socket directory, where neither --weight-cache-socket-dir nor $PRELOAD_SOCKET_DIR says "
     "another. It is on a local file system, the user's, and not writable by others."},
    {"<h>[.<slot>][_draft].sock", "serve keeper status wait attach verify release stop doctor",
     "A daemon's socket; <h> are 16 hex digits made of the device's UUID."},
    {"<h>[.<slot>][_draft].lock", "serve status wait stop",
     "Its lock, held while it loads and serves; never unlinked."},
    {"<h>[.<slot>][_draft].state", "serve status wait",
     "What it is about to serve and how far it is, or why it failed."},
    {"warmup-<hex>/", "serve", "The private sockets of --warmup-exec, as long as it runs."},
    {"keeper.sock, keeper.lock", "keeper serve stop",
     "The keeper's socket, and the lock that it holds."},
    {"~/.cache/preload/vllm-warmup-cache/nccl_tuner/", "serve tune",
     "Tuning tables, by configuration and environment: .json for NCCL's tuner, .csv for NCCL's "
     "example tuner, .sweep.json with all that was measured."},
    {"~/.cache/preload/", "serve attach key bench",
     "Receipts of hashed checkpoints, and the reader that was fastest on each file system."},
    {"~/.cache/preload/engine-caches/", "serve",
     "Where --warmup-exec has engines keep what they compile and tune, by configuration, with an "
     "environment.sh that tells them."},
    {"~/.cache/preload/vllm-warmup-cache/", "serve artifacts",
     "What warm-ups left: <kind>/<config-hash>/<filename>, a record of each in a hidden file "
     "beside "
     "it."},
});

}  // namespace

std::string_view overview() noexcept { return kOverview; }
std::span<const CommandText> command_texts() noexcept { return kCommandTexts; }
std::span<const Example> examples() noexcept { return kExamples; }
std::span<const Entry> exit_statuses() noexcept { return kExitStatuses; }
std::span<const Entry> variables() noexcept { return kVariables; }
std::span<const Entry> files() noexcept { return kFiles; }

bool lists(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    const std::size_t end = list.find(' ');
    if (list.substr(0, end) == word) return true;
    if (end == std::string_view::npos) break;
    list.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace preload::manual
