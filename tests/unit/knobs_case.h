/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_case.h - a command line of knobs, cut at its blanks, held against the rules. */
#ifndef DCPK_TESTS_UNIT_KNOBS_CASE_H
#define DCPK_TESTS_UNIT_KNOBS_CASE_H

#include "lib/train/knobs.h"
#include "tests/check.h"

#define MAX_WORDS 96

/* Of the line that was checked last. */
static struct dcpk_error err;
static struct dcpk_arena *arena;
static struct dcpk_train_knobs knobs;
static struct dcpk_train_notices notices;

#define TOY                                                                                        \
    "train --num-layers 4 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 "          \
    "--seq-length 32 --micro-batch-size 1 --train-iters 20 "
#define FSDP  TOY "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
#define SAVED FSDP "--save OUT "
#define FSDP2 TOY "--use-torch-fsdp2 --no-gradient-accumulation-fusion "

/* What of the environment a row sets; the number of ranks is 8 unless it does. */
struct surroundings {
    const char *connections, *alloc_conf, *nccl_algo, *te_algo, *cublas_config;
    int gpu_major;
    int64_t n_ranks;
};

static dcpk_status check_line(const char *line, const struct surroundings *s)
{
    const struct dcpk_train_environment environment = {
        .max_connections = s->connections,
        .alloc_conf = s->alloc_conf,
        .nccl_algo = s->nccl_algo,
        .te_algo = s->te_algo,
        .cublas_config = s->cublas_config,
        .gpu_major = s->gpu_major,
        .n_ranks = s->n_ranks == 0 ? 8 : s->n_ranks,
    };
    char *words[MAX_WORDS], *text = dcpk_arena_strdup(arena, line, &err);
    int n = 0;

    for (char *word = text; word != NULL && *word != '\0';) {
        char *blank = strchr(word, ' ');

        words[n++] = word;
        word = blank;
        if (blank != NULL) {
            *blank = '\0';
            word = blank + 1;
        }
    }
    words[n] = NULL;
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    notices.n = 0;
    dcpk_train_knobs_init(&knobs, arena);
    if (dcpk_train_knobs_take_args(&knobs, &n, words, &err) != DCPK_OK)
        return err.status;
    CHECK_EQ_INT(n, 1, line);
    return dcpk_train_knobs_check(&knobs, &environment, &notices, &err);
}

static int knobs_set_up(void **state)
{
    (void)state;
    arena = dcpk_arena_new(0, &err);
    return arena == NULL;
}

static int knobs_tear_down(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

#endif
