// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/problems.hpp"

namespace preload {

namespace {

namespace fs = std::filesystem;

std::string expand_home(const std::string& path) {
  if (path == "~" || path.starts_with("~/")) {
    return environment("HOME") + path.substr(1);
  }
  return path;
}

// Where the hub's own tools would look, by the same variables.
fs::path hub_directory(const std::string& given) {
  if (!given.empty()) return expand_home(given);
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string value = environment(name); !value.empty()) return expand_home(value);
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) {
    return fs::path(expand_home(home)) / "hub";
  }
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "huggingface" / "hub";
  }
  return fs::path(expand_home("~/.cache/huggingface/hub"));
}

// "name" or "organization/name", of the characters that the hub allows.
bool is_hub_id(std::string_view id) {
  const std::size_t slash = id.find('/');
  const auto part = [](std::string_view text) {
    return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
           text.find("..") == std::string_view::npos && text.find("--") == std::string_view::npos &&
           std::all_of(text.begin(), text.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || c == '.';
           });
  };
  if (slash == std::string_view::npos) return part(id);
  return part(id.substr(0, slash)) && part(id.substr(slash + 1));
}

bool stays_below(const fs::path& relative) {
  return !relative.empty() && relative.is_relative() &&
         std::none_of(relative.begin(), relative.end(),
                      [](const fs::path& part) { return part == ".." || part == "."; });
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

std::vector<std::string> children(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string hub_snapshot(const std::string& id, const OpenOptions& options) {
  std::string folder = "models--" + id;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  const fs::path repository = hub_directory(options.hub_cache) / folder;
  const fs::path reference = repository / "refs" / options.revision;
  std::string commit;
  std::string tried = fmt::format("'{}'", repository.string());
  if (fs::is_directory(repository) && stays_below(options.revision)) {
    tried = fmt::format("'{}'", reference.string());
    if (fs::is_regular_file(reference)) commit = first_line(reference);
    if (commit.empty() && is_commit(options.revision)) commit = options.revision;
    if (!commit.empty() && stays_below(commit)) {
      const fs::path snapshot = repository / "snapshots" / commit;
      if (fs::is_directory(snapshot)) return fs::absolute(snapshot).lexically_normal().string();
      tried += fmt::format(", '{}'", snapshot.string());
    }
  }
  std::string known;
  if (const auto names = children(repository / "refs"); !names.empty()) {
    known += fmt::format("; known revisions: {}", quote_list(names));
  }
  if (const auto names = children(repository / "snapshots"); !names.empty()) {
    known += fmt::format("; known commits: {}", quote_list(names));
  }
  throw Error(
      Errc::kCheckpoint,
      fmt::format("model {} is neither a directory nor in the local hub cache at revision "
                  "{} (tried {}{}); preload never downloads: run `hf download {} --revision "
                  "{}` where there is a network, set HF_HOME or HF_HUB_CACHE, or give the "
                  "checkpoint's directory",
                  quote(id), quote(options.revision), tried, known, id, options.revision));
}

}  // namespace

std::string resolve_model(const std::string& model, const OpenOptions& options) try {
  if (model.empty()) {
    throw Error(Errc::kCheckpoint, "no model is named: give the checkpoint's directory or hub id");
  }
  const fs::path path = expand_home(model);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    std::string directory = fs::absolute(path).lexically_normal().string();
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    return directory;
  }
  if (fs::exists(status)) {
    throw Error(Errc::kCheckpoint,
                fmt::format("model {} is a file; give the directory that holds it and its "
                            "config.json",
                            quote(model)));
  }
  if (!is_hub_id(model)) {
    throw Error(Errc::kCheckpoint,
                fmt::format("model {}: there is no such directory ({}), and it is no hub id of the "
                            "form organization/name; give the checkpoint's directory",
                            quote(model), fs::absolute(path).string()));
  }
  return hub_snapshot(model, options);
} catch (const fs::filesystem_error& error) {  // a directory on the way that may not be searched
  throw Error(Errc::kCheckpoint, fmt::format("model {}: {}", quote(model), error.what()));
}

}  // namespace preload
