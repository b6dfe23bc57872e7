// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "model/copy_program.hpp"
#include "serve/access_list.hpp"
#include "wire/progress.hpp"

namespace preload {

// What a user says of it: "" is the default.
struct SocketDirChoice {
  SocketDirChoice(std::string directory = {}, std::vector<unsigned> uids = {})
      : path(std::move(directory)), allow_uids(std::move(uids)) {}
  SocketDirChoice(const char* directory) : path(directory) {}

  std::string path;
  // Whom to trust at the other end besides ourselves and root; $PRELOAD_ALLOW_UIDS adds to them.
  std::vector<unsigned> allow_uids;
};

// The directory that daemons and clients meet in: --weight-cache-socket-dir, else
// $PRELOAD_SOCKET_DIR, else /tmp/preload-<uid>.
class SocketDir {
 public:
  // A daemon's, when `create`: made (0700) where it is not there, ours, and opened to the users
  // that are allowed. A client's may also be root's or an allowed user's. Throws Error(kUsage) with
  // path, owner and remedy when it is a symlink, somebody else's, writable by others (the derived
  // one: readable by others), or on a network file system; Error(kUnavailable) when it is not there
  // and not to be created.
  static SocketDir open(const SocketDirChoice& given, bool create);

  int fd() const noexcept { return fd_.get(); }
  const std::string& path() const noexcept { return path_; }
  // "/proc/self/fd/<dirfd>/<name>": no race, no 107-byte limit.
  std::string proc_path(const std::string& name) const;
  std::vector<std::string> list() const;  // entry names, sorted

  bool trusts(unsigned uid) const noexcept;  // ours, root, or one that is allowed
  const std::vector<unsigned>& allow_uids() const noexcept { return allow_uids_; }
  // Lets those who are allowed read (or, a socket, connect to) an entry of a daemon's directory.
  void share(const std::string& name, Access access) const;

 private:
  SocketDir(Fd fd, std::string path, std::vector<unsigned> allow_uids)
      : fd_(std::move(fd)), path_(std::move(path)), allow_uids_(std::move(allow_uids)) {}
  Fd fd_;
  std::string path_;
  std::vector<unsigned> allow_uids_;
};

// Identity of one daemon within the directory.
struct Endpoint {
  std::string device;  // "gpu-8-4-4-4-12", "mig-…" or "host:<local rank>", lower case
  std::string slot;    // empty, or [a-z0-9-]{1,32}
  Role role = Role::kTarget;

  std::string stem() const;  // <h>[.<slot>][_draft]
  std::string socket_name() const { return stem() + ".sock"; }
  std::string lock_name() const { return stem() + ".lock"; }
  std::string next_lock_name() const { return stem() + ".next.lock"; }  // a successor's
  std::string state_name() const { return stem() + ".state"; }
  std::string next_state_name() const { return stem() + ".next.state"; }  // a successor's
};

// flock on <stem>.lock, taken before anything is read or allocated; the file is never unlinked.
// Throws Error(kBusy) naming the holder's pid within a second.
Fd take_lock(const SocketDir& directory, const Endpoint& endpoint);
// The same for a lock of another name; the message says that `whose` runs already.
Fd take_named_lock(const SocketDir& directory, const std::string& name, const std::string& whose);
void note_holder(const Fd& lock);  // this process, for messages in others
// A probe that never disturbs a holder.
bool lock_is_held(const SocketDir& directory, const std::string& lock_name);
// The pid that the last holder wrote into the lock file.
std::optional<int> lock_holder(const SocketDir& directory, const std::string& lock_name);

// The `.state` file beside the lock: what a rank does before it serves. It counts only while the
// lock is held; a failure leaves a tombstone.
struct StateFile {
  std::string state;  // LOADING, READY, FAILED
  std::string device, slot, role;
  std::string job;
  std::string boot_id;
  int pid = 0;
  int global_rank = 0;
  int local_size = 1;  // daemons of this job and role in this directory
  std::string model;
  wire::Progress progress;
  std::int64_t time_ms = 0;  // of writing, since the epoch
  std::string code, text;    // tombstone
  int exit_status = 0;
};
// Fills in what is left empty: device, slot and role from the endpoint, pid, boot id and time from
// this process.
void write_state(const SocketDir& directory, const Endpoint& endpoint, const StateFile& state);
void write_state(const SocketDir& directory, const Endpoint& endpoint, const std::string& name,
                 const StateFile& state);  // under another name
// Nothing when it is absent or no state file.
std::optional<StateFile> read_state(const SocketDir& directory, const std::string& state_name);
// After a requested stop, before the lock is given up.
void remove_state(const SocketDir& directory, const Endpoint& endpoint);
void remove_state(const SocketDir& directory, const std::string& state_name);
// A state file of another boot is a leftover.
std::string current_boot_id();

}  // namespace preload
