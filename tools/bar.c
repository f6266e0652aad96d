/* SPDX-License-Identifier: Apache-2.0 */
/* bar.c - progress as text: part and bytes done, GB/s, time left. */
#include "tools/bar.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/order.h"

#define MAX_CELLS       30
#define MIN_CELLS       5 /* a shorter bar shows nothing */
#define DEFAULT_COLUMNS 80
#define MAX_COLUMNS     256
#define TERMINAL_PERIOD 0.1  /* seconds between two drawings */
#define WANTED_PERIOD   5.0  /* between two lines that were asked for */
#define LOG_PERIOD      10.0 /* between two that were not, and before the first */

/* "42 s", "3:05 min", "2:03:05 h". */
static void put_duration(char *text, size_t n, double seconds)
{
    const uint64_t s = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 1000000000;

    if (s < 60)
        snprintf(text, n, "%" PRIu64 " s", s);
    else if (s < 3600)
        snprintf(text, n, "%" PRIu64 ":%02" PRIu64 " min", s / 60, s % 60);
    else
        snprintf(text, n, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " h", s / 3600, s / 60 % 60,
                 s % 60);
}

/*
 * "42 % of 4.27 GiB, 1.23 GB/s, 42 s left", without speed while nothing is known of it; at the end
 * "4.27 GiB in 6 s, 1.23 GB/s".
 */
static void put_state(const struct dcpk_bar *bar, uint64_t done, uint64_t total, double now,
                      char *text, size_t n)
{
    const double seconds = now - bar->start_seconds;
    const double rate = seconds > 0 ? (double)(done - bar->first_bytes) / seconds : 0;
    const double percent = 100 * (double)done / (double)total;
    char size[DCPK_SIZE_TEXT_BYTES], duration[32];

    dcpk_cli_short_size(total, size);
    if (done >= total) {
        put_duration(duration, sizeof duration, seconds);
        snprintf(text, n, "%s in %s, %.2f GB/s", size, duration, 1e-9 * rate);
    } else if (rate > 0) {
        put_duration(duration, sizeof duration, (double)(total - done) / rate);
        snprintf(text, n, "%3.0f %% of %s, %.2f GB/s, %s left", percent, size, 1e-9 * rate,
                 duration);
    } else {
        snprintf(text, n, "%3.0f %% of %s", percent, size);
    }
}

static int terminal_columns(void)
{
    struct winsize size = {0};

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_COLUMNS;
    return (int)dcpk_min_i64(size.ws_col, MAX_COLUMNS);
}

/* One line, never wider than the terminal: a wrapped one could not be redrawn. */
static void draw_bar(const struct dcpk_bar *bar, double part, const char *state)
{
    char line[MAX_COLUMNS + 1], cells[MAX_CELLS + 1];
    const int columns = terminal_columns() - 1; /* writing the last one would wrap some */
    int n_cells = columns - (int)strlen(bar->label) - (int)strlen(state) - 4;

    if (n_cells > MAX_CELLS)
        n_cells = MAX_CELLS;
    if (n_cells >= MIN_CELLS) {
        for (int i = 0; i < n_cells; i++)
            cells[i] = i < (int)(part * n_cells) ? '#' : '.';
        cells[n_cells] = '\0';
        snprintf(line, sizeof line, "%s [%s] %s", bar->label, cells, state);
    } else {
        snprintf(line, sizeof line, "%s %s", bar->label, state);
    }
    dcpk_cli_clear_line(stderr);
    dcpk_cli_printf(stderr, "%.*s", columns, line);
    fflush(stderr);
}

/* A pass begins: the first one, the next of several, or one that another run did half of. */
static void begin_pass(struct dcpk_bar *bar, uint64_t done_bytes, double now)
{
    bar->has_begun = true;
    bar->has_ended = false;
    bar->first_bytes = done_bytes;
    bar->start_seconds = now;
}

static double period(const struct dcpk_bar *bar)
{
    if (bar->is_terminal)
        return TERMINAL_PERIOD;
    return bar->wants_lines ? WANTED_PERIOD : LOG_PERIOD;
}

/* True if it is time for a line. The end gets one line, but not in a log that did not ask for
 * progress. */
static bool is_due(struct dcpk_bar *bar, bool is_end, double now)
{
    const bool shows_end = is_end && !bar->has_ended && (bar->is_terminal || bar->wants_lines);

    bar->has_ended = is_end;
    return !bar->is_quiet && (shows_end || (!is_end && now >= bar->next_seconds));
}

static bool on_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct dcpk_bar *bar = context;
    const double now = dcpk_now_seconds();
    const bool is_wanted = dcpk_cli_take_line_wanted();
    char state[128];

    if (!bar->has_begun || done_bytes < bar->last_bytes)
        begin_pass(bar, done_bytes, bar->has_begun ? now : bar->start_seconds);
    bar->last_bytes = done_bytes;
    if (total_bytes > 0 && (is_due(bar, done_bytes >= total_bytes, now) || is_wanted)) {
        put_state(bar, done_bytes, total_bytes, now, state, sizeof state);
        if (bar->is_terminal && !bar->is_quiet)
            draw_bar(bar, (double)done_bytes / (double)total_bytes, state);
        else
            dcpk_cli_printf(stderr, "dcpkit: %s: %s\n", bar->label, state);
        bar->next_seconds = now + period(bar);
    }
    return !dcpk_cli_interrupted();
}

static void clear_line(const struct dcpk_bar *bar)
{
    if (!bar->is_terminal || bar->is_quiet || !bar->has_begun)
        return;
    dcpk_cli_clear_line(stderr);
    fflush(stderr);
}

static void on_begin(void *context, const char *label)
{
    struct dcpk_bar *bar = context;

    clear_line(bar);
    bar->label = label;
    bar->has_begun = false;
    bar->start_seconds = dcpk_now_seconds();
}

struct dcpk_progress dcpk_bar_begin(struct dcpk_bar *bar, const char *label,
                                    const struct dcpk_verbosity *verbosity)
{
    struct dcpk_progress progress = {.begin = on_begin, .update = on_progress, .context = bar};

    memset(bar, 0, sizeof *bar);
    bar->label = label;
    bar->is_terminal = isatty(STDERR_FILENO) == 1;
    bar->is_quiet = verbosity->is_quiet;
    bar->wants_lines = verbosity->wants_progress;
    bar->start_seconds = dcpk_now_seconds();
    if (!bar->is_terminal)
        bar->next_seconds = bar->start_seconds + period(bar);
    return progress;
}

void dcpk_bar_end(struct dcpk_bar *bar)
{
    clear_line(bar);
    bar->has_begun = false;
}
