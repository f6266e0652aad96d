/* SPDX-License-Identifier: Apache-2.0 */
/* train_log.c - a step printed, and appended to the log's file in one write. */
#include "tools/train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/report/plain.h"
#include "lib/train/config.h"
#include "lib/train/footprint.h"
#include "lib/train/run_values.h"
#include "tools/cmd.h"

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
        (void)dcpk_fail(err, DCPK_EUSAGE,
                        "'%s' is not a log, because it does not begin with a command: nothing is "
                        "appended to it",
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
    if (folder != NULL && dcpk_train_events_begin(&log->events, folder, err) != DCPK_OK)
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
    return dcpk_train_events_put(&log->events, log->config, step, seconds,
                                 log_throughput(log, seconds), err);
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

dcpk_status dcpk_train_log_end(struct dcpk_train_log *log, const uint64_t held[DCPK_N_TAGS],
                               struct dcpk_error *err)
{
    struct dcpk_json_out j;
    char key[32];

    if (!log->is_printed && log->file == NULL)
        return DCPK_OK;
    log->line.n_bytes = 0;
    dcpk_json_out_init(&j, &log->line, 0);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "held");
    dcpk_json_begin_object(&j);
    for (int tag = 0; tag < DCPK_N_TAGS; tag++) {
        snprintf(key, sizeof key, "%s_bytes", dcpk_memory_tag_names[tag]);
        dcpk_json_add_uint(&j, key, held[tag]);
    }
    dcpk_json_add_uint(&j, "all_bytes", dcpk_train_held_sum(held));
    dcpk_json_end_object(&j);
    dcpk_json_end_object(&j);
    dcpk_bytes_text(&log->line, "\n");
    if (log->is_printed && !log->as_json)
        log_print_held(held);
    return log_add(log, err);
}

void dcpk_train_log_close(struct dcpk_train_log *log)
{
    dcpk_file_abandon(log->file); /* appended lines stay */
    dcpk_train_events_close(&log->events);
    dcpk_train_page_release(&log->page);
    dcpk_bytes_release(&log->line);
    *log = (struct dcpk_train_log){0};
}
