/* SPDX-License-Identifier: Apache-2.0 */
/* print_schedule.c - learning rates and weight decay of schedules read from stdin, for schedules.py
 * to compare. */
/*
 * In: a line "LR_STYLE WSD_STYLE WD_STYLE LR MIN INIT START_WD END_WD WARMUP_ITERS FRACTION
 * DECAY_ITERS WSD_ITERS TRAIN_ITERS BATCH N" each. Out: N lines "RATE DECAY", a batch apart, as hex
 * floats.
 */
#include <inttypes.h>
#include <stdio.h>

#include "lib/train/schedule.h"

static bool read_config(struct dcpk_train_config *config, char style[3][32], int *n)
{
    struct dcpk_train_optim *o = &config->optim;

    o->lr_style = style[0];
    o->wsd_style = style[1];
    o->wd_style = style[2];
    return scanf("%31s %31s %31s %lf %lf %lf %lf %lf %" SCNd64 " %lf %" SCNd64 " %" SCNd64
                 " %" SCNd64 " %" SCNd64 " %d",
                 style[0], style[1], style[2], &o->lr, &o->min_lr, &o->warmup_init_lr, &o->start_wd,
                 &o->end_wd, &o->warmup_iters, &o->warmup_fraction, &o->decay_iters, &o->wsd_iters,
                 &config->data.train_iters, &config->data.global_batch, n) == 15;
}

int main(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_train_config config = {0};
    struct dcpk_schedule schedule;
    char style[3][32];
    int n;

    while (read_config(&config, style, &n)) {
        if (dcpk_schedule_init(&config, &schedule, &err) != DCPK_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        for (int i = 0; i < n; i++) {
            printf("%a %a\n", dcpk_schedule_lr(&schedule), dcpk_schedule_wd(&schedule));
            dcpk_schedule_step(&schedule, config.data.global_batch);
        }
    }
    return 0;
}
