// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "load/evidence.hpp"
#include "wire/messages.hpp"

namespace preload::client {

// What a user insists on. The daemon compares `served`; a model's files this process compares
// itself, since it can read what the daemon cannot.
struct Expectation {
  wire::Expectation served;
  std::string model;              // directory or hub id; empty: none
  std::string revision = "main";  // of a hub id
  bool trust_sample = false;      // a few KiB of each file are evidence enough
};

// {"key": hex, "checkpoint": hex, "fields": {…}, "model": DIR, "revision": NAME,
// "trust_sample": true}; all may be left out. Throws Error(kUsage).
Expectation expectation_from_json(std::string_view text);

struct ModelMatch {
  std::string key;  // of what was compared: to be expected when attaching
  Evidence evidence = Evidence::kNone;
};

// Compares the files of `expect.model` with what a daemon describes: first the key's other fields,
// planned from the model's headers the way the daemon did, then the bytes by the cheapest evidence
// that is at hand (load/evidence.hpp); hashing all of them, the last, is remembered. Throws
// wire::PeerError(kMismatch) with both values of each field that differs, and what opening the
// model throws.
ModelMatch match_model(const Expectation& expect, const wire::DescribeReply& served);

}  // namespace preload::client
