/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_codec.c - the table of compressors, each with the library that undoes it. */
#include <libdeflate.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/zarr/zarr_array.h"
#include "lib/base/order.h"
#ifdef DCPK_HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>

#define ZSTD_LEVEL 1 /* the difference of two iterations: level 3 takes 1 % less room */
#endif
#ifdef DCPK_HAVE_BLOSC
#include <blosc.h>
#endif

typedef enum libdeflate_result inflate(struct libdeflate_decompressor *, const void *, size_t,
                                       void *, size_t, size_t *, size_t *);

static dcpk_status inflate_whole(inflate *run, const uint8_t *in, size_t n_in, uint8_t *out,
                                 size_t n_out, struct dcpk_error *err)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    enum libdeflate_result result;
    size_t taken = 0;

    if (d == NULL)
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for a decompressor");
    result = run(d, in, n_in, out, n_out, &taken, NULL);
    libdeflate_free_decompressor(d);
    if (result == LIBDEFLATE_SHORT_OUTPUT || result == LIBDEFLATE_INSUFFICIENT_SPACE)
        return dcpk_fail(err, DCPK_EFORMAT, "the stream holds %s than the chunk's %zu bytes",
                         result == LIBDEFLATE_SHORT_OUTPUT ? "less" : "more", n_out);
    if (result != LIBDEFLATE_SUCCESS)
        return dcpk_fail(err, DCPK_EFORMAT, "the stream is damaged or of another kind");
    if (taken != n_in)
        return dcpk_fail(err, DCPK_EFORMAT, "%zu bytes after the end of the stream", n_in - taken);
    return DCPK_OK;
}

static dcpk_status decode_zlib(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                               struct dcpk_error *err)
{
    return inflate_whole(libdeflate_zlib_decompress_ex, in, n_in, out, n_out, err);
}

static dcpk_status decode_gzip(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                               struct dcpk_error *err)
{
    return inflate_whole(libdeflate_gzip_decompress_ex, in, n_in, out, n_out, err);
}

#ifdef DCPK_HAVE_ZSTD
static dcpk_status decode_zstd(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                               struct dcpk_error *err)
{
    const size_t n = ZSTD_decompress(out, n_out, in, n_in);

    if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for a decompressor");
    if (ZSTD_isError(n))
        return dcpk_fail(err, DCPK_EFORMAT, "zstd: %s", ZSTD_getErrorName(n));
    if (n != n_out)
        return dcpk_fail(err, DCPK_EFORMAT, "the frame holds %zu bytes, the chunk has %zu", n,
                         n_out);
    return DCPK_OK;
}

static dcpk_status encode_zstd(const uint8_t *in, size_t n_in, uint8_t *out, size_t *n_out,
                               struct dcpk_error *err)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t n;

    if (context == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1))) {
        ZSTD_freeCCtx(context);
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for a compressor");
    }
    n = ZSTD_compress2(context, out, *n_out, in, n_in);
    ZSTD_freeCCtx(context);
    *n_out = 0;
    if (!ZSTD_isError(n))
        *n_out = n;
    else if (ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
        return dcpk_fail(err, DCPK_ENOMEM, "zstd: %s", ZSTD_getErrorName(n));
    return DCPK_OK;
}

static const struct dcpk_codec zstd = {encode_zstd, decode_zstd};
const struct dcpk_codec *const dcpk_zstd = &zstd;
#else
const struct dcpk_codec *const dcpk_zstd = NULL;
#endif

#ifdef DCPK_HAVE_BLOSC
static dcpk_status decode_blosc(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                                struct dcpk_error *err)
{
    size_t n = 0;

    if (n_in < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(in, n_in, &n) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "no blosc buffer, or not of %zu bytes", n_in);
    if (n != n_out)
        return dcpk_fail(err, DCPK_EFORMAT, "the buffer holds %zu bytes, the chunk has %zu", n,
                         n_out);
    /* The context form has no global state; one thread, because the callers are many. */
    if (blosc_decompress_ctx(in, out, n_out, 1) != (int)n_out)
        return dcpk_fail(err, DCPK_EFORMAT, "the blosc buffer is damaged");
    return DCPK_OK;
}
#endif

static const struct dcpk_zarr_codec codecs[] = {
    {"zlib", decode_zlib},
    {"gzip", decode_gzip},
#ifdef DCPK_HAVE_ZSTD
    {"zstd", decode_zstd},
#endif
#ifdef DCPK_HAVE_BLOSC
    {"blosc", decode_blosc},
#endif
};

const char *const dcpk_zarr_absent_codecs[] = {
#ifndef DCPK_HAVE_ZSTD
    "zarr codec zstd",
#endif
#ifndef DCPK_HAVE_BLOSC
    "zarr codec blosc",
#endif
    NULL,
};

const struct dcpk_zarr_codec *dcpk_zarr_codec_find(const char *id)
{
    for (size_t i = 0; i < DCPK_COUNT(codecs); i++)
        if (strcmp(codecs[i].id, id) == 0)
            return &codecs[i];
    return NULL;
}
