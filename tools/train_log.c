/* SPDX-License-Identifier: Apache-2.0 */
/* train_log.c - a step printed, appended to the log's file in one write, and as records of
 * TensorBoard. */
#include "tools/train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/formats.h"
#include "lib/base/clock.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/ckpt/run.h"
#include "lib/io/sink.h"
#include "lib/report/plain.h"
#include "lib/train/footprint.h"
#include "lib/train/run_values.h"
#include "tools/cmd.h"

#define PATH_BYTES 4096
#define HOST_BYTES 256

/* ---- records of TensorBoard ---- */

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

/* Makes the folder, and in it a new file of events. Errors: DCPK_EIO, DCPK_ENOMEM. */
static dcpk_status events_begin(struct dcpk_train_events *events, const char *folder,
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

/*
 * Appends the scalars of a step: Megatron's tags of training_log, by iteration and by samples.
 * seconds: the step took; tflops: of each rank in each second. Errors: DCPK_EIO, DCPK_ENOMEM.
 */
static dcpk_status events_put(struct dcpk_train_events *events,
                              const struct dcpk_train_config *config, const struct dcpk_step *step,
                              double seconds, double tflops, struct dcpk_error *err)
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
        for (size_t i = 0; i < DCPK_COUNT(scalars); i++) {
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

static void events_close(struct dcpk_train_events *events)
{
    dcpk_file_abandon(events->file); /* appended records stay */
    dcpk_bytes_release(&events->scalars);
    dcpk_bytes_release(&events->record);
    *events = (struct dcpk_train_events){0};
}

#define LINE_BYTES  1024
#define TIME_BYTES  32
#define NORM_BYTES  352 /* of any double, with its label */
#define SPEED_BYTES 64
#define LOG_BEGIN   "{\"command\"" /* of every log, by its first line */

/* TFLOP/s of each rank. */
static double log_throughput(const struct dcpk_train_log *log, double seconds)
{
    return dcpk_train_step_flops(log->config) / (1e12 * seconds * log->n_ranks);
}

/* As Megatron's training_log has it (lib/job/step_log.h): a loss of no token is NAN, a skipped
 * step has no norm. */
static void log_print(const struct dcpk_train_log *log, const struct dcpk_step *step,
                      double seconds)
{
    char text[LINE_BYTES], clock[TIME_BYTES] = "", norm[NORM_BYTES] = "", speed[SPEED_BYTES] = "";
    const double loss = step->loss.is_there ? step->loss.value : (double)NAN;
    struct timespec now = {0};
    struct tm local;

    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local) != NULL)
        strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", &local);
    if (step->grad_norm.is_there)
        snprintf(norm, sizeof norm, "grad norm: %.3f | ", step->grad_norm.value);
    if (log->config->files.logger.has_throughput)
        snprintf(speed, sizeof speed, "throughput per GPU (TFLOP/s/GPU): %.1f | ",
                 log_throughput(log, seconds));
    snprintf(text, sizeof text,
             " [%s.%06ld] iteration %8" PRId64 "/%8" PRId64 " | consumed samples: %12" PRId64
             " | elapsed time per iteration (ms): %.1f | %slearning rate: %.6E | lm loss: %.6E"
             " | loss scale: %.1f | %snumber of skipped iterations: %3d |",
             clock, now.tv_nsec / 1000, step->iteration, log->config->data.train_iters,
             step->consumed_samples, seconds * 1e3, speed, step->next_lr.value, loss,
             step->next_loss_scale.value, norm, (int)step->is_skipped);
    dcpk_cli_put_text(stdout, text);
    dcpk_cli_printf(stdout, "\n");
}

/* The line in log->line goes where lines of JSON go. */
static dcpk_status log_add(struct dcpk_train_log *log, struct dcpk_error *err)
{
    if (dcpk_bytes_status(&log->line, err) != DCPK_OK)
        return err->status;
    if (log->is_printed && log->as_json)
        dcpk_cli_put_lines(stdout, (const char *)log->line.data, log->line.n_bytes);
    if (dcpk_cli_flush(err) != DCPK_OK || log->file == NULL)
        return err->status;
    return dcpk_file_put(log->file, log->line.data, log->line.n_bytes, err);
}

dcpk_status dcpk_train_log_check(const char *path, struct dcpk_error *err)
{
    char text[sizeof LOG_BEGIN - 1];
    FILE *file = NULL;
    struct stat there;
    size_t n;

    if (stat(path, &there) == 0 && S_ISREG(there.st_mode))
        file = fopen(path, "re");
    if (file == NULL) /* nothing, no plain file, or one that opening to append names */
        return DCPK_OK;
    n = fread(text, 1, sizeof text, file);
    if (ferror(file) != 0)
        (void)dcpk_fail_errno(err, errno, "reading '%s'", path);
    else if (n > 0 && (n < sizeof text || memcmp(text, LOG_BEGIN, n) != 0))
        (void)dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a log of 'train': nothing is appended to it",
                        path);
    (void)fclose(file);
    return err->status;
}

dcpk_status dcpk_train_log_begin(struct dcpk_train_log *log, const struct dcpk_train_args *asked,
                                 int n_ranks, struct dcpk_error *err)
{
    const char *folder = asked->knobs.config.files.logger.folder;
    struct dcpk_json_out j;

    log->config = &asked->knobs.config;
    log->n_ranks = n_ranks;
    if (folder != NULL && events_begin(&log->events, folder, err) != DCPK_OK)
        return err->status;
    log->before = dcpk_now_seconds();
    log->line.n_bytes = 0;
    dcpk_json_out_init(&j, &log->line, 0);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "command");
    dcpk_json_begin_array(&j);
    for (int i = 0; i < asked->n_words; i++)
        dcpk_json_put_string(&j, asked->words[i]);
    dcpk_json_end_array(&j);
    dcpk_json_add_int(&j, "n_ranks", n_ranks);
    dcpk_run_line_put(&asked->knobs.config, &j);
    dcpk_json_put_key(&j, "notices");
    dcpk_json_begin_array(&j);
    for (size_t i = 0; i < asked->notices.n; i++)
        dcpk_json_put_string(&j, asked->notices.texts[i]);
    dcpk_json_end_array(&j);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    dcpk_bytes_text(&log->line, "\n");
    return log_add(log, err);
}

dcpk_status dcpk_train_log_put(struct dcpk_train_log *log, const struct dcpk_step *step,
                               struct dcpk_error *err)
{
    const double now = dcpk_now_seconds(), seconds = now - log->before;

    if (!log->is_printed && log->file == NULL && log->events.file == NULL && log->page.path == NULL)
        return DCPK_OK;
    log->line.n_bytes = 0;
    dcpk_step_put(step, &log->line);
    if (log->is_printed && !log->as_json)
        log_print(log, step, seconds);
    log->before = now;
    if (log_add(log, err) || dcpk_train_page_put(&log->page, log->config, step, seconds, err))
        return err->status;
    return events_put(&log->events, log->config, step, seconds, log_throughput(log, seconds), err);
}

static void log_print_held(const uint64_t held[DCPK_N_TAGS])
{
    char bytes[DCPK_PLAIN_SIZE_BYTES];

    dcpk_cli_printf(stdout, " memory of the rank that held most |");
    for (int tag = 0; tag < DCPK_N_TAGS; tag++)
        dcpk_cli_printf(stdout, " %s: %s |", dcpk_memory_tag_names[tag],
                        dcpk_plain_size(held[tag], bytes));
    dcpk_cli_printf(stdout, " all: %s |\n", dcpk_plain_size(dcpk_train_held_sum(held), bytes));
}

/* Begins a line that is an object with one member, an object: {"held": { */
static void log_begin_member(struct dcpk_train_log *log, struct dcpk_json_out *j, const char *key)
{
    log->line.n_bytes = 0;
    dcpk_json_out_init(j, &log->line, 0);
    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, key);
    dcpk_json_begin_object(j);
}

static void log_end_member(struct dcpk_train_log *log, struct dcpk_json_out *j)
{
    dcpk_json_end_object(j);
    dcpk_json_end_object(j);
    dcpk_bytes_text(&log->line, "\n");
}

dcpk_status dcpk_train_log_end(struct dcpk_train_log *log, const uint64_t held[DCPK_N_TAGS],
                               struct dcpk_error *err)
{
    struct dcpk_json_out j;
    char key[32];

    if (!log->is_printed && log->file == NULL)
        return DCPK_OK;
    log_begin_member(log, &j, "held");
    for (int tag = 0; tag < DCPK_N_TAGS; tag++) {
        snprintf(key, sizeof key, "%s_bytes", dcpk_memory_tag_names[tag]);
        dcpk_json_add_uint(&j, key, held[tag]);
    }
    dcpk_json_add_uint(&j, "all_bytes", dcpk_train_held_sum(held));
    log_end_member(log, &j);
    if (log->is_printed && !log->as_json)
        log_print_held(held);
    return log_add(log, err);
}

/* ---- seconds ---- */

/* Calls `put` for each number of `times`. */
static void times_each(const struct dcpk_times *times, struct dcpk_json_out *j,
                       void (*put)(struct dcpk_json_out *j, const char *name, double seconds))
{
    for (int i = 1; i < DCPK_N_PHASES; i++)
        put(j, dcpk_phase_names[i], times->phase[i]);
    put(j, dcpk_phase_names[DCPK_PHASE_OTHER], times->phase[DCPK_PHASE_OTHER]);
    put(j, "all", times->all);
    if (times->has_streams) {
        put(j, "gather_stream", times->busy.gather);
        put(j, "reduce_stream", times->busy.reduce);
    }
}

static void put_json_seconds(struct dcpk_json_out *j, const char *name, double seconds)
{
    dcpk_json_put_key(j, name);
    dcpk_json_put_double(j, round(seconds * 1e9) / 1e9);
}

static void print_seconds(struct dcpk_json_out *j, const char *name, double seconds)
{
    (void)j;
    dcpk_cli_printf(stdout, " %s: %.4f |", name, seconds);
}

static void put_json_times(struct dcpk_json_out *j, const char *key, const struct dcpk_times *times)
{
    dcpk_json_put_key(j, key);
    dcpk_json_begin_object(j);
    times_each(times, j, put_json_seconds);
    dcpk_json_end_object(j);
}

dcpk_status dcpk_train_log_times(struct dcpk_train_log *log, int64_t iteration,
                                 const struct dcpk_times *times, struct dcpk_error *err)
{
    struct dcpk_json_out j;

    log_begin_member(log, &j, "seconds");
    dcpk_json_add_int(&j, "iteration", iteration);
    times_each(times, &j, put_json_seconds);
    if (log->is_printed && !log->as_json) {
        dcpk_cli_printf(stdout, " seconds to iteration %" PRId64 " |", iteration);
        times_each(times, NULL, print_seconds);
        dcpk_cli_printf(stdout, "\n");
    }
    log_end_member(log, &j);
    return log_add(log, err);
}

dcpk_status dcpk_train_log_times_of_run(struct dcpk_train_log *log, int64_t n_iterations,
                                        const struct dcpk_times *mean,
                                        const struct dcpk_times *most, struct dcpk_error *err)
{
    const struct {
        const char *name;
        const struct dcpk_times *times;
    } rows[] = {{"mean", mean}, {"most", most}};
    struct dcpk_json_out j;

    log_begin_member(log, &j, "seconds_of_run");
    dcpk_json_add_int(&j, "n_iterations", n_iterations);
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        put_json_times(&j, rows[i].name, rows[i].times);
        if (!log->is_printed || log->as_json || (i > 0 && log->n_ranks == 1))
            continue;
        dcpk_cli_printf(stdout, " seconds of the run, iterations: %" PRId64 ", %s of ranks |",
                        n_iterations, rows[i].name);
        times_each(rows[i].times, NULL, print_seconds);
        dcpk_cli_printf(stdout, "\n");
    }
    log_end_member(log, &j);
    return log_add(log, err);
}

dcpk_status dcpk_train_log_written(struct dcpk_train_log *log, struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};
    struct dcpk_json_out j;

    if (!log->is_printed)
        return DCPK_OK;
    if (log->has_saved) /* the newest of the folder, then */
        (void)dcpk_run_find(log->config->files.save, dcpk_formats, &run, &ignored);
    const struct {
        const char *key, *path;
    } written[] = {
        {"checkpoint", run.folder},
        {"log", log->config->files.log},
        {"page", log->page.path},
        {"param_to_param_group_map", log->config->files.map_folder},
        {"tensorboard", log->config->files.logger.folder},
    };
    log_begin_member(log, &j, "written");
    for (size_t i = 0; i < DCPK_COUNT(written); i++) {
        if (written[i].path == NULL)
            continue;
        dcpk_json_add_string(&j, written[i].key, written[i].path);
        if (!log->as_json)
            dcpk_cli_printf(stdout, " written: %s '%s'\n", written[i].key, written[i].path);
    }
    log_end_member(log, &j);
    dcpk_run_release(&run);
    if (log->as_json && dcpk_bytes_status(&log->line, err) == DCPK_OK)
        dcpk_cli_put_lines(stdout, (const char *)log->line.data, log->line.n_bytes);
    if (err->status != DCPK_OK)
        return err->status;
    return dcpk_cli_flush(err);
}

void dcpk_train_log_close(struct dcpk_train_log *log)
{
    dcpk_file_abandon(log->file); /* appended lines stay */
    events_close(&log->events);
    dcpk_train_page_release(&log->page);
    dcpk_bytes_release(&log->line);
    *log = (struct dcpk_train_log){0};
}
