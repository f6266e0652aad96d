/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_zarr_chunk.c - any bytes as a compressed chunk: exactly its elements, or an error, and no
 * byte beside either. */
/*
 * The input: the codec, the chunk's bytes (two bytes, little-endian), the stream. The libraries
 * that decode are not instrumented: pages that cannot be touched stand behind what they may touch.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/zarr/zarr_array.h"
#include "lib/base/cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define REGION_BYTES (128u << 10)

/* REGION_BYTES whose end is the end of what can be touched. */
static uint8_t *guarded(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *region =
        mmap(NULL, REGION_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (region == MAP_FAILED || mprotect(region + REGION_BYTES, page, PROT_NONE) != 0)
        abort();
    return region;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const ids[] = {"zlib", "gzip", "zstd", "blosc"};
    static const uint8_t before[16] = "before the chunk";
    static uint8_t *in, *out;
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_zarr_codec *codec;
    size_t n_out;

    if (n_bytes < 3 || n_bytes - 3 > REGION_BYTES)
        return 0;
    codec = dcpk_zarr_codec_find(ids[data[0] % 4]);
    if (codec == NULL)
        return 0; /* not in this build */
    if (in == NULL) {
        in = guarded();
        out = guarded();
    }
    n_out = dcpk_load_u16le(data + 1);
    n_bytes -= 3;
    memcpy(in + REGION_BYTES - n_bytes, data + 3, n_bytes);
    memcpy(out + REGION_BYTES - n_out - sizeof before, before, sizeof before);
    if (codec->decode(in + REGION_BYTES - n_bytes, n_bytes, out + REGION_BYTES - n_out, n_out,
                      &err) != DCPK_OK &&
        err.text[0] == '\0')
        abort();
    if (memcmp(out + REGION_BYTES - n_out - sizeof before, before, sizeof before) != 0)
        abort();
    return 0;
}
