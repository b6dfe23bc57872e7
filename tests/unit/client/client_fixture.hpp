// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "preload/client.h"
#include "support/temp_dir.hpp"
#include "unit/client/live_server.hpp"

namespace preload::test {

struct Detach {
  void operator()(preload_attachment* attachment) const { preload_detach(attachment); }
};
using AttachmentPtr = std::unique_ptr<preload_attachment, Detach>;

// A directory with one daemon that serves one_of_everything().
class ClientTest : public ::testing::Test {
 protected:
  std::string socket_dir() const { return directory_ / "run"; }
  preload_attach_options options() const {
    preload_attach_options options{};
    options.struct_size = sizeof(options);
    options.socket_dir = socket_dir_.c_str();
    return options;
  }
  void serve() { server_ = std::make_unique<LiveServer>(socket_dir_, one_of_everything()); }
  AttachmentPtr attach() const { return attach(options()); }
  static AttachmentPtr attach(const preload_attach_options& options) {
    preload_attachment* attachment = nullptr;
    EXPECT_EQ(preload_attach(&options, &attachment), PRELOAD_OK) << preload_last_error();
    return AttachmentPtr(attachment);
  }
  // The status of an attach that is expected to fail; its text is preload_last_error().
  static preload_status refusal(const preload_attach_options& options) {
    preload_attachment* attachment = nullptr;
    const preload_status status = preload_attach(&options, &attachment);
    EXPECT_EQ(attachment, nullptr);
    return status;
  }
  static preload_tensor tensor(const AttachmentPtr& attachment, const char* name) {
    std::uint64_t index = 0;
    preload_tensor tensor{};
    tensor.struct_size = sizeof(tensor);
    EXPECT_EQ(preload_find_tensor(attachment.get(), name, &index), PRELOAD_OK)
        << preload_last_error();
    EXPECT_EQ(preload_get_tensor(attachment.get(), index, &tensor), PRELOAD_OK);
    return tensor;
  }
  static std::string text(const preload_tensor& tensor) {
    return {static_cast<const char*>(tensor.data), tensor.bytes};
  }

  TempDir directory_;
  std::string socket_dir_ = directory_ / "run";
  std::unique_ptr<LiveServer> server_;
};

}  // namespace preload::test
