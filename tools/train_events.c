/* SPDX-License-Identifier: Apache-2.0 */
/* train_events.c - records of TensorBoard, appended one step at a time. */
#include "tools/train_events.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lib/io/sink.h"

#define PATH_BYTES 4096
#define HOST_BYTES 256

/* ---- records ---- */

/* Castagnoli's polynomial, bit by bit: a step has a few hundred bytes. */
static uint32_t crc32c(const uint8_t *data, size_t n_bytes)
{
    const uint32_t polynomial = 0x82f63b78;
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) * polynomial);
    }
    return ~crc;
}

static uint32_t masked_crc(const uint8_t *data, size_t n_bytes)
{
    const uint32_t crc = crc32c(data, n_bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

static void put_varint(struct dcpk_bytes *b, uint64_t v)
{
    for (; v > 0x7f; v >>= 7)
        dcpk_bytes_u8(b, (uint8_t)(v & 0x7f) | 0x80);
    dcpk_bytes_u8(b, (uint8_t)v);
}

static void put_field(struct dcpk_bytes *b, unsigned number, unsigned wire_type)
{
    dcpk_bytes_u8(b, (uint8_t)(number << 3 | wire_type));
}

static void put_length_delimited(struct dcpk_bytes *b, unsigned number, const void *data,
                                 size_t n_bytes)
{
    put_field(b, number, BYTES);
    put_varint(b, n_bytes);
    dcpk_bytes_put(b, data, n_bytes);
}

/* A Summary.Value inside a Summary: its tag, and its simple_value. */
static void put_scalar(struct dcpk_bytes *b, const char *tag, double value)
{
    const size_t n = strlen(tag);
    const float simple = (float)value;
    uint32_t bits;

    memcpy(&bits, &simple, sizeof bits);
    put_field(b, 1, BYTES);
    put_varint(b, 2 + n + 1 + sizeof bits); /* tags are shorter than 128 bytes */
    put_length_delimited(b, 1, tag, n);
    put_field(b, 2, FIXED32);
    dcpk_bytes_u32(b, bits);
}

/* Appends an Event with one field of bytes: 3, the version of the file, or 5, a Summary. */
static dcpk_status add_event(struct dcpk_train_events *events, int64_t step, unsigned number,
                             const void *data, size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_bytes *b = &events->record;
    struct timespec now;
    double seconds;
    uint64_t bits;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    b->n_bytes = 0;
    dcpk_bytes_zeros(b, 12); /* length and its sum */
    put_field(b, 1, FIXED64);
    dcpk_bytes_u64(b, bits);
    put_field(b, 2, VARINT);
    put_varint(b, (uint64_t)step);
    put_length_delimited(b, number, data, n_bytes);
    if (dcpk_bytes_status(b, err) != DCPK_OK)
        return err->status;
    n = b->n_bytes - 12;
    dcpk_store_u64le(b->data, n);
    dcpk_store_u32le(b->data + 8, masked_crc(b->data, 8));
    dcpk_bytes_u32(b, masked_crc(b->data + 12, n));
    if (dcpk_bytes_status(b, err) != DCPK_OK)
        return err->status;
    return dcpk_file_put(events->file, b->data, b->n_bytes, err);
}

/* ---- the run ---- */

dcpk_status dcpk_train_events_begin(struct dcpk_train_events *events, const char *folder,
                                    struct dcpk_error *err)
{
    static const char version[] = "brain.Event:2";
    char path[PATH_BYTES], host[HOST_BYTES] = "host";
    int n_made = 0, n;

    (void)gethostname(host, sizeof host - 1);
    n = snprintf(path, sizeof path, "%s/events.out.tfevents.%" PRId64 ".%s.%ld.0", folder,
                 (int64_t)time(NULL), host, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof path)
        return dcpk_fail(err, DCPK_EUSAGE, "the path of the folder for TensorBoard is too long");
    if (dcpk_parents_make(path, &n_made, err) != DCPK_OK ||
        dcpk_file_begin(path, DCPK_FILE_APPEND, &events->file, err) != DCPK_OK)
        return err->status;
    return add_event(events, 0, 3, version, strlen(version), err);
}

dcpk_status dcpk_train_events_put(struct dcpk_train_events *events,
                                  const struct dcpk_train_config *config,
                                  const struct dcpk_step *step, double seconds, double tflops,
                                  struct dcpk_error *err)
{
    const struct dcpk_train_logger *logger = &config->files.logger;
    const struct {
        bool is_wanted, has_samples;
        const char *tag;
        double value;
    } scalars[] = {
        {true, true, "learning-rate", step->next_lr.value},
        {true, true, "batch-size", (double)config->data.global_batch},
        {step->loss.is_there, true, "lm loss", step->loss.value},
        {logger->has_loss_scale, true, "loss-scale", step->next_loss_scale.value},
        {step->grad_norm.is_there, true, "grad-norm", step->grad_norm.value},
        {logger->has_times, false, "iteration-time", seconds},
        {logger->has_times && logger->has_throughput, false, "throughput", tflops},
    };
    const int64_t steps[] = {step->iteration, step->consumed_samples};
    struct dcpk_bytes *b = &events->scalars;
    char tag[32];

    if (events->file == NULL || step->iteration % logger->interval != 0)
        return DCPK_OK;
    for (int by_samples = 0; by_samples < 2; by_samples++) {
        b->n_bytes = 0;
        for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
            if (!scalars[i].is_wanted || (by_samples && !scalars[i].has_samples))
                continue;
            snprintf(tag, sizeof tag, "%s%s", scalars[i].tag, by_samples ? " vs samples" : "");
            put_scalar(b, tag, scalars[i].value);
        }
        if (dcpk_bytes_status(b, err) != DCPK_OK ||
            add_event(events, steps[by_samples], 5, b->data, b->n_bytes, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

void dcpk_train_events_close(struct dcpk_train_events *events)
{
    dcpk_file_abandon(events->file); /* appended records stay */
    dcpk_bytes_release(&events->scalars);
    dcpk_bytes_release(&events->record);
    *events = (struct dcpk_train_events){0};
}
