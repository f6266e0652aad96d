/* SPDX-License-Identifier: Apache-2.0 */
/* api_session.c - what a program has of the library: its options, progress and failures. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/api/api_priv.h"
#include "lib/base/alloc.h"

#define SAME(name) static_assert((int)DCPKIT_##name == (int)DCPK_##name, "one status, one number")
SAME(OK);
SAME(EUSAGE);
SAME(EFORMAT);
SAME(EUNSUPPORTED);
SAME(ERANGE);
SAME(EMISMATCH);
SAME(ENOMEM);
SAME(EIO);
SAME(ECANCELLED);

/* A later field must not lie where an earlier caller has padding, of any value. */
#define ENDS_WITH(type, last)                                                                      \
    static_assert(offsetof(struct type, last) + sizeof(((struct type *)0)->last) ==                \
                      sizeof(struct type),                                                         \
                  "a struct with a size has no padding at its end")
ENDS_WITH(dcpkit_options, context);
ENDS_WITH(dcpkit_convert_options, dtype);
ENDS_WITH(dcpkit_engine_options, reserved);
ENDS_WITH(dcpkit_map_totals, note);
ENDS_WITH(dcpkit_map_stats, sent_bytes);

const char *dcpkit_version(void)
{
    return DCPK_VERSION;
}

const char *dcpkit_format_name(size_t index)
{
    for (size_t i = 0; dcpk_formats[i] != NULL; i++)
        if (i == index)
            return dcpk_formats[i]->name;
    return NULL;
}

static void session_stage(void *context, const char *label)
{
    ((dcpkit *)context)->stage = label;
}

static bool session_update(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const dcpkit *session = context;
    const struct dcpkit_options *o = &session->options;

    return o->progress(o->context, session->stage, done_bytes, total_bytes) == 0;
}

dcpk_status api_check_size(size_t most, size_t n_bytes, struct dcpk_error *err)
{
    if (n_bytes >= sizeof n_bytes && n_bytes <= most)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "a struct has %zu bytes, but this library expects %zu",
                     n_bytes, most);
}

dcpk_status api_take(void *to, size_t most, const void *from, size_t n_bytes,
                     struct dcpk_error *err)
{
    if (api_check_size(most, n_bytes, err))
        return err->status;
    memcpy(to, from, n_bytes);
    return DCPK_OK;
}

void api_give(void *to, const void *from, size_t n_bytes)
{
    memcpy((uint8_t *)to + sizeof n_bytes, (const uint8_t *)from + sizeof n_bytes,
           n_bytes - sizeof n_bytes);
}

dcpk_status api_give_text(struct dcpk_bytes *bytes, char **text, struct dcpk_error *err)
{
    dcpk_bytes_u8(bytes, 0);
    if (dcpk_bytes_status(bytes, err)) {
        dcpk_bytes_release(bytes);
        return err->status;
    }
    *text = (char *)bytes->data;
    return DCPK_OK;
}

static dcpk_status options_take(struct dcpkit_options *to, const struct dcpkit_options *from,
                                struct dcpk_error *err)
{
    if (api_take(to, sizeof *to, from, from->size, err))
        return err->status;
    if (to->n_threads < 0)
        return dcpk_fail(err, DCPK_EUSAGE, "%d is not a number of threads", to->n_threads);
    return DCPK_OK;
}

int dcpkit_new(const struct dcpkit_options *options, dcpkit **session)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpkit *made = dcpk_alloc(sizeof *made, &err);

    if (made == NULL)
        return (int)err.status;
    if (options != NULL && options_take(&made->options, options, &err)) {
        dcpk_free(made);
        return (int)err.status;
    }
    made->env = (struct dcpk_env){
        .formats = dcpk_formats,
        .open_file = dcpk_archive_opener,
        .open_url = dcpk_remote_open,
        .side_files = dcpk_side_files,
        .kernels = dcpk_host_kernel_sets[0],
        .n_threads = made->options.n_threads,
        .memory_bytes = made->options.memory_bytes,
    };
    made->stage = "";
    if (made->options.progress != NULL)
        made->env.progress = (struct dcpk_progress){session_update, made, session_stage};
    *session = made;
    return DCPKIT_OK;
}

void dcpkit_free(dcpkit *session)
{
    dcpk_free(session);
}

const char *dcpkit_error(const dcpkit *session)
{
    return session->err.text;
}

#define FIX(api, lib)                                                                              \
    static_assert((int)DCPKIT_FIX_##api == (int)DCPK_FIX_##lib, "one fix, one bit")
FIX(REPLACE, REPLACE);
FIX(RESUME, RESUME);
FIX(MEMORY, MEMORY);
FIX(WEIGHTS_ONLY, WEIGHTS_ONLY);
FIX(SWIGLU, SWIGLU);
FIX(NO_MESH, NO_MESH);
FIX(NO_PROOF, NO_READ_BACK);
FIX(NO_INTEGRITY, NO_INTEGRITY);
FIX(CONFIG, CONFIG);

unsigned dcpkit_fixes(const dcpkit *session)
{
    const unsigned ours = DCPKIT_FIX_REPLACE | DCPKIT_FIX_RESUME | DCPKIT_FIX_MEMORY |
                          DCPKIT_FIX_WEIGHTS_ONLY | DCPKIT_FIX_SWIGLU | DCPKIT_FIX_NO_MESH |
                          DCPKIT_FIX_NO_PROOF | DCPKIT_FIX_NO_INTEGRITY | DCPKIT_FIX_CONFIG;

    return session->err.fixes & ours;
}

void dcpkit_text_free(char *text)
{
    dcpk_free(text);
}
