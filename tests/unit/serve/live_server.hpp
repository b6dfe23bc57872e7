// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "serve/connect.hpp"
#include "serve/server.hpp"
#include "unit/serve/temp_dir.hpp"
#include "unit/wire/manifest_sample.hpp"
#include "wire/exchange.hpp"

namespace preload {

inline Fd sealed_memfd(std::string_view text) {
  Fd fd = make_memfd("preload-test", text.size());
  const Mapping mapping = map_fd(fd.get(), text.size(), true, "a test's memfd");
  std::memcpy(mapping.data(), text.data(), text.size());
  seal_memfd(fd.get());
  return fd;
}

// The sample shard of the manifest tests; every byte of slab i is 'a' + i.
inline Residency sample_residency() {
  Residency residency;
  residency.endpoint = {"host:0", "", Role::kTarget};
  residency.job = "job-1";
  residency.model = "/models/sample";
  residency.coords.global = 3;
  residency.fields = {{"dtype", "BF16"}, {"tp_size", "2"}};
  residency.key = std::string(64, 'a');
  residency.checkpoint = std::string(64, 'b');
  residency.receipt_json = "[]";
  residency.overhead_bytes = 77;
  residency.manifest = sealed_memfd(wire::sample_manifest());
  residency.tensor_count = wire::sample_tensors().size();
  char letter = 'a';
  for (const wire::ManifestSlab& slab : wire::sample_slabs()) {
    SlabHandle handle;
    handle.cls = slab.cls;
    handle.bytes = slab.bytes;
    handle.fd = sealed_memfd(std::string(slab.bytes, letter++));
    residency.slabs.push_back(std::move(handle));
  }
  return residency;
}

inline void put_artifact(int socket, const std::string& key, const std::string& text,
                         const std::string& metadata = "") {
  wire::call_put_artifact(socket, {key, text.size(), metadata}, sealed_memfd(text).get(), 20000);
}
// What is there under the key, as "<text>|<metadata>".
inline std::optional<std::string> get_artifact(int socket, const std::string& key) {
  const wire::FoundArtifact found = wire::call_get_artifact(socket, {key}, 20000);
  if (!found.reply.found) return std::nullopt;
  const Mapping content = map_fd(found.content.get(), found.reply.bytes, false, "an artifact");
  return std::string(reinterpret_cast<const char*>(content.data()), content.size()) + "|" +
         found.reply.metadata;
}

// A server on a thread of its own, in a directory of its own.
class LiveServer {
 public:
  explicit LiveServer(Residency residency = sample_residency(), ServerOptions options = {},
                      bool admitted = true)
      : name_(residency.endpoint.socket_name()),
        directory_(temp_.open()),
        server_(std::in_place, directory_, std::move(residency), std::move(options)) {
    if (admitted) server_->admit();
  }
  ~LiveServer() { end(); }

  void start() {
    thread_ = std::thread([this] { end_ = server_->run(); });
  }
  Server& server() { return *server_; }
  const SocketDir& directory() const { return directory_; }
  const TempDir& temp() const { return temp_; }
  Fd connect() const { return connect_to(directory_, name_, 5000); }

  // Waits for run() to return by itself.
  ServeEnd join() {
    thread_.join();
    return end_;
  }
  void end() {
    if (!server_) return;
    server_->end({ServeEnd::Cause::kSignal, 143, "the test is over"});
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  wire::DaemonStatus status() const { return wire::call_status(connect().get(), 5000); }

 private:
  TempDir temp_;
  std::string name_;
  SocketDir directory_;
  std::optional<Server> server_;
  std::thread thread_;
  ServeEnd end_;
};

// Both ends of a lease, as a client holds them.
struct LeasePipe {
  LeasePipe() {
    std::array<int, 2> ends{};
    check_sys(::pipe2(ends.data(), O_CLOEXEC), "pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  Fd read, write;
};

struct Client {
  wire::Attached attached;
  LeasePipe lease;
};

inline wire::AttachRequest attach_request(const wire::Expectation& expect = {}) {
  wire::AttachRequest request;
  request.expect = expect;
  request.client = {::getpid(), "test client", "0.1.0"};
  return request;
}

inline Client attach(const LiveServer& live, const wire::Expectation& expect = {}) {
  Client client;
  const Fd socket = live.connect();
  client.attached =
      wire::call_attach(socket.get(), attach_request(expect), client.lease.read.get(), 5000);
  client.lease.read.reset();
  return client;
}

// The refusal that `call` meets.
inline wire::ErrorReply refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const wire::PeerError& error) {
    return error.reply();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::milliseconds(1000)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace preload
