// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/header_json.hpp"

#include <unordered_set>

#include "checkpoint/json_events.hpp"

namespace preload {

namespace {

constexpr std::string_view kRemedy = "; download or write the file again";

// Depth 1 is the header itself, depth 2 a tensor (or the metadata), depth 3 a list of numbers.
class HeaderReader final : public JsonHandler {
 public:
  HeaderReader(std::string_view file, Problems& problems) : file_(file), problems_(problems) {}

  void open(bool object) override {
    ++depth_;
    if (depth_ == 1) {
      if (!object) problem("the header is a JSON array, not an object");
    } else if (depth_ == 2) {
      open_entry(object);
    } else if (depth_ == 3 && !metadata_ && !object && is_list(field_)) {
      seen_ |= bit(field_);
    } else {
      wrong_value();
    }
  }

  void close() override {
    --depth_;
    if (depth_ == 1 && in_entry_) close_entry();
  }

  void key(std::string& name) override {
    if (depth_ == 1) {
      metadata_ = name == "__metadata__";
      entry_ = {};
      entry_.name = std::move(name);
      offsets_ = 0;
      seen_ = 0;
      fault_.clear();
    } else if (depth_ == 2 && !metadata_) {
      field_ = field_of(name);
      if (field_ != Field::kUnknown && (seen_ & bit(field_)) != 0) {
        fault("has the field " + quote(name) + " twice");
      }
    }
  }

  void string(std::string& value) override {
    if (depth_ == 2 && metadata_) return;
    if (depth_ == 2 && field_ == Field::kDType) {
      entry_.dtype = std::move(value);
      seen_ |= bit(field_);
    } else {
      wrong_value();
    }
  }

  void number(std::uint64_t value) override {
    if (depth_ != 3 || metadata_ || !is_list(field_)) {
      wrong_value();
    } else if (field_ == Field::kShape) {
      if (entry_.dimensions < entry_.shape.size()) {
        entry_.shape[entry_.dimensions++] = value;
      } else {
        fault("has more than 8 dimensions, the most that is supported");
      }
    } else if (offsets_ < entry_.data_offsets.size()) {
      entry_.data_offsets[offsets_++] = value;
    } else {
      fault("has data_offsets that are not two numbers");
    }
  }

  void other() override { wrong_value(); }

  std::vector<HeaderEntry> take() { return std::move(entries_); }

 private:
  enum class Field { kUnknown, kDType, kShape, kOffsets };

  static unsigned bit(Field field) { return 1U << static_cast<unsigned>(field); }
  static Field field_of(std::string_view name) {
    if (name == "dtype") return Field::kDType;
    if (name == "shape") return Field::kShape;
    if (name == "data_offsets") return Field::kOffsets;
    return Field::kUnknown;
  }

  static bool is_list(Field field) { return field == Field::kShape || field == Field::kOffsets; }

  void problem(std::string text) { problems_.add(file_, text + std::string(kRemedy)); }
  void fault(std::string text) {
    if (fault_.empty()) fault_ = std::move(text);
  }

  // A value where the format has none of that type. Fields that the format does not know are the
  // writer's business at any depth.
  void wrong_value() {
    if (depth_ == 0) {
      problem("the header is no JSON object");
    } else if (depth_ == 1) {
      report("is not described by a JSON object");
    } else if (metadata_) {
      if (depth_ == 2 || !metadata_fault_) report_metadata();
    } else if (field_ == Field::kDType) {
      fault("has a dtype that is no string");
    } else if (field_ == Field::kShape) {
      fault("has a shape that is no list of whole numbers ≥ 0");
    } else if (field_ == Field::kOffsets) {
      fault("has data_offsets that are no list of two whole numbers ≥ 0");
    }
  }

  void report(std::string text) { problems_.add(file_, entry_.name, text + std::string(kRemedy)); }
  void report_metadata() {
    if (!metadata_fault_) problem("__metadata__ is no object of strings");
    metadata_fault_ = true;
  }

  void open_entry(bool object) {
    field_ = Field::kUnknown;
    in_entry_ = object && !metadata_;
    if (object) return;
    if (metadata_) {
      report_metadata();
    } else {
      report("is not described by a JSON object");
    }
  }

  void close_entry() {
    in_entry_ = false;
    for (const Field field : {Field::kDType, Field::kShape, Field::kOffsets}) {
      if ((seen_ & bit(field)) == 0) fault("lacks its dtype, shape or data_offsets");
    }
    if (fault_.empty() && offsets_ != entry_.data_offsets.size()) {
      fault("has data_offsets that are not two numbers");
    }
    if (fault_.empty()) {
      entries_.push_back(std::move(entry_));
    } else {
      report(std::move(fault_));
      fault_.clear();
    }
  }

  std::string_view file_;
  Problems& problems_;
  int depth_ = 0;
  bool metadata_ = false;        // the current key of depth 1 is __metadata__
  bool metadata_fault_ = false;  // and something about it was reported
  bool in_entry_ = false;
  Field field_ = Field::kUnknown;
  unsigned seen_ = 0;
  std::string fault_;
  HeaderEntry entry_;
  std::size_t offsets_ = 0;
  std::vector<HeaderEntry> entries_;
};

void check_names(std::string_view file, const std::vector<HeaderEntry>& entries,
                 Problems& problems) {
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const HeaderEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      problems.add(file, entry.name, "is named twice in the header" + std::string(kRemedy));
    }
  }
}

}  // namespace

std::vector<HeaderEntry> parse_header_json(std::string_view file, std::string_view json,
                                           Problems& problems) {
  HeaderReader reader(file, problems);
  if (const auto error = parse_json(json, reader)) {
    problems.add(file, "the header is no valid JSON (" + *error +
                           "): the file is damaged or no safetensors file; download it again");
    return {};
  }
  std::vector<HeaderEntry> entries = reader.take();
  check_names(file, entries, problems);
  return entries;
}

}  // namespace preload
