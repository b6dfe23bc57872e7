// SPDX-License-Identifier: Apache-2.0
#include "unit/tuner/plugin_use.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace preload::test {
namespace {

std::shared_ptr<void> open(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return {library, [](void* handle) { dlclose(handle); }};
}

}  // namespace

FakeNccl::FakeNccl(const char* path)
    : library_(open(path)),
      functions_(
          static_cast<const FakeNcclFunctions*>(dlsym(library_.get(), "fake_nccl_functions"))) {
  if (functions_ == nullptr) throw std::runtime_error(dlerror());
  functions_->take_log();
}

FakeNccl FakeNccl::current() { return FakeNccl(PRELOAD_FAKE_NCCL); }
FakeNccl FakeNccl::older() { return FakeNccl(PRELOAD_FAKE_NCCL_OLDER); }
FakeNccl FakeNccl::unversioned() { return FakeNccl(PRELOAD_FAKE_NCCL_UNVERSIONED); }

Formed::Formed(const FakeNccl& nccl, std::size_t ranks, std::size_t nodes)
    : nccl_(nccl), communicator_(nccl.functions().form(PRELOAD_TUNER_PLUGIN, ranks, nodes)) {
  if (communicator_ == nullptr) throw std::runtime_error("the plugin did not load");
}

Formed::~Formed() { EXPECT_EQ(nccl_.functions().destroy(communicator_), 0); }

FakeAnswer Formed::ask(const FakeQuestion& question) const {
  const FakeAnswer answer = nccl_.functions().ask(communicator_, question);
  EXPECT_EQ(answer.result, 0);
  return answer;
}

Control::Control() : library_(open(PRELOAD_TUNER_PLUGIN)) {
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library_.get(), name));
    if (function == nullptr) throw std::runtime_error(dlerror());
  };
  find("preload_nccl_tuner_abi_version", abi_version);
  find("preload_nccl_tuner_communicators", communicators);
  find("preload_nccl_tuner_force", force);
  find("preload_nccl_tuner_leave", leave);
  find("preload_nccl_tuner_use_table", use_table);
  find("preload_nccl_tuner_last_call", last_call);
}

preload_nccl_tuner_communicator Control::newest() const {
  std::vector<preload_nccl_tuner_communicator> all(communicators(nullptr, 0));
  if (all.empty()) throw std::runtime_error("no communicator is open");
  communicators(all.data(), all.size());
  return all.back();
}

NamedTable::NamedTable(const std::string& text) {
  directory_.write("table.json", text);
  variable_.emplace("PRELOAD_TUNER_TABLE", (directory_ / "table.json").c_str());
}

std::shared_ptr<void> fake_gpu() { return open(PRELOAD_FAKE_GPU_NAME); }
std::string plugin_path() { return PRELOAD_TUNER_PLUGIN; }

FakeQuestion all_reduce(std::size_t bytes) {
  FakeQuestion question;
  question.collective = kAllReduce;
  question.bytes = bytes;
  question.costs.at(kTree, kLl) = 11.0F;
  question.costs.at(kRing, kLl) = 7.0F;
  question.costs.at(kRing, kSimple) = 20.0F;
  question.costs.at(kNvls, kSimple) = 15.0F;
  return question;
}

}  // namespace preload::test
