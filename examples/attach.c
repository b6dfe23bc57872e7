/* SPDX-License-Identifier: Apache-2.0
 *
 * attach [DEVICE]: attaches to the daemon of DEVICE ("host:0", a GPU's UUID or CUDA index; the only
 * daemon when left out) and prints a checksum of every tensor, recomputed from the bytes that were
 * mapped. Socket directory and slot come from
 * $PRELOAD_SOCKET_DIR and $PRELOAD_SLOT. */
#include <inttypes.h>
#include <preload/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

__extension__ typedef unsigned __int128 wide;

/* The hash of docs/hash.md over contiguous bytes: the sum of word i times r(i), mod 2^128. */
static void hash(const unsigned char* bytes, uint64_t count, char text[33]) {
  wide sum = 0;
  for (uint64_t i = 0; i * 8 < count; ++i) {
    unsigned char word[8] = {0};
    uint64_t value = 0;
    const uint64_t left = count - i * 8;
    memcpy(word, bytes + i * 8, left < 8 ? (size_t)left : 8);
    for (int b = 7; b >= 0; --b) value = value << 8 | word[b];
    const wide factor = ((wide)splitmix64(2 * i) << 64 | splitmix64(2 * i + 1)) | 1;
    sum += value * factor;
  }
  snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)(sum >> 64), (uint64_t)sum);
}

static int print_tensors(const preload_attachment* attachment, const preload_info* info) {
  int differing = 0;
  for (uint64_t i = 0; i < info->tensor_count; ++i) {
    preload_tensor tensor = {.struct_size = sizeof tensor};
    if (preload_get_tensor(attachment, i, &tensor) != PRELOAD_OK) {
      fprintf(stderr, "attach: %s\n", preload_last_error());
      return 1;
    }
    const uint64_t count = tensor.row_major_bytes;
    unsigned char* bytes = malloc(count + 1);
    if (bytes == NULL || preload_read_tensor(attachment, i, bytes, count) != PRELOAD_OK) {
      fprintf(stderr, "attach: %s: %s\n", tensor.name, preload_last_error());
      free(bytes);
      return 1;
    }
    char text[33];
    hash(bytes, count, text);
    free(bytes);
    if (strcmp(text, tensor.hash) != 0) ++differing;
    printf("%s  %s  %s\n", text, tensor.dtype, tensor.name);
  }
  if (differing != 0) fprintf(stderr, "attach: %d tensors differ from their hash\n", differing);
  return differing != 0;
}

int main(int argc, char** argv) {
  preload_attach_options options = {.struct_size = sizeof options};
  preload_attachment* attachment = NULL;
  options.device = argc > 1 ? argv[1] : NULL;
  options.slot = getenv("PRELOAD_SLOT");
  const preload_status status = preload_attach(&options, &attachment);
  if (status != PRELOAD_OK) {
    fprintf(stderr, "attach: %s: %s\n", preload_status_name(status), preload_last_error());
    return 7;
  }
  preload_info info = {.struct_size = sizeof info};
  int failed = preload_get_info(attachment, &info) != PRELOAD_OK;
  if (!failed) failed = print_tensors(attachment, &info);
  preload_detach(attachment);
  return failed;
}
