/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the formulas of Megatron's scheduler in its order of operations: doubles are equal
 * to Python's. */
#include "lib/train/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/order.h"

static const char *const lr_names[] = {"constant", "linear", "cosine", "inverse-square-root",
                                       "WSD"};
static const char *const wsd_names[] = {"linear", "cosine", "exponential", "minus_sqrt"};
static const char *const wd_names[] = {"constant", "linear", "cosine"};

static dcpk_status style_named(const char *what, const char *const *names, size_t n,
                               const char *name, unsigned *style, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            *style = (unsigned)i;
            return DCPK_OK;
        }
    }
    return dcpk_fail(err, DCPK_EUSAGE, "'%s' is not a style of %s", name, what);
}

/* As the assertions of its constructor, and of get_wd. */
static dcpk_status schedule_check(const struct dcpk_schedule *s, struct dcpk_error *err)
{
    if (s->min_lr < 0 || s->max_lr < s->min_lr || s->init_lr > s->max_lr)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "learning rates: minimum %g, of warm-up %g and maximum %g; wanted 0 <= "
                         "minimum <= maximum and warm-up <= maximum",
                         s->min_lr, s->init_lr, s->max_lr);
    if (s->lr_decay_steps <= 0 || s->lr_warmup_steps < 0 ||
        s->lr_warmup_steps >= (double)s->lr_decay_steps)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the learning rate warms up for %g samples, and has decayed after %" PRId64
                         ": wanted fewer for the first",
                         s->lr_warmup_steps, s->lr_decay_steps);
    if (s->lr_style == DCPK_LR_WSD && s->wsd_decay_steps <= 0)
        return dcpk_fail(err, DCPK_EUSAGE, "the style WSD needs the iterations of its decay");
    if (s->start_wd < 0 || s->end_wd < s->start_wd)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "weight decay: %g to %g; wanted 0 <= the first <= the second", s->start_wd,
                         s->end_wd);
    if (s->wd_style == DCPK_WD_CONSTANT && s->start_wd != s->end_wd)
        return dcpk_fail(err, DCPK_EUSAGE, "constant weight decay, but it is %g to %g", s->start_wd,
                         s->end_wd);
    if (s->wd_style != DCPK_WD_CONSTANT && s->wd_incr_steps <= 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "weight decay %s, but over %" PRId64 " samples: wanted more, or constant",
                         wd_names[s->wd_style], s->wd_incr_steps);
    return DCPK_OK;
}

static dcpk_status take_styles(const struct dcpk_train_optim *o, struct dcpk_schedule *s,
                               struct dcpk_error *err)
{
    unsigned lr, wd, wsd = DCPK_WSD_EXPONENTIAL;

    if (style_named("learning rates", lr_names, DCPK_COUNT(lr_names), o->lr_style, &lr, err) ||
        style_named("weight decay", wd_names, DCPK_COUNT(wd_names), o->wd_style, &wd, err))
        return err->status;
    if (o->wsd_style != NULL &&
        style_named("WSD", wsd_names, DCPK_COUNT(wsd_names), o->wsd_style, &wsd, err))
        return err->status;
    s->lr_style = (enum dcpk_lr_style)lr;
    s->wsd_style = (enum dcpk_wsd_style)wsd;
    s->wd_style = (enum dcpk_wd_style)wd;
    return DCPK_OK;
}

dcpk_status dcpk_schedule_init(const struct dcpk_train_config *config,
                               struct dcpk_schedule *schedule, struct dcpk_error *err)
{
    const struct dcpk_train_optim *o = &config->optim;
    const int64_t batch = config->data.global_batch;
    /* A run of no iterations makes what lies before them alone. */
    const int64_t train_iters = dcpk_max_i64(config->data.train_iters, 1);
    const int64_t decay_iters = o->decay_iters > 0 ? o->decay_iters : train_iters;
    struct dcpk_schedule s = {
        .init_lr = o->warmup_init_lr,
        .max_lr = o->lr,
        .min_lr = o->min_lr,
        .start_wd = o->start_wd,
        .end_wd = o->end_wd,
        .lr_warmup_steps = (double)(o->warmup_iters * batch),
        .has_warmup_fraction = o->warmup_fraction > 0,
        .lr_decay_steps = decay_iters * batch,
        .wsd_decay_steps = o->wsd_iters * batch,
        .wd_incr_steps = config->data.train_iters * batch,
    };

    if (s.has_warmup_fraction)
        s.lr_warmup_steps = o->warmup_fraction * (double)s.lr_decay_steps;
    if (take_styles(o, &s, err) || schedule_check(&s, err))
        return err->status;
    *schedule = s;
    return DCPK_OK;
}

static double half_cosine(double ratio)
{
    return 0.5 * (cos(M_PI * ratio) + 1.0);
}

/* The part of max - min that is left after `ratio` of the last samples. */
static double wsd_left(enum dcpk_wsd_style style, double ratio)
{
    switch (style) {
    case DCPK_WSD_LINEAR:
        return 1.0 - ratio;
    case DCPK_WSD_COSINE:
        return half_cosine(ratio);
    case DCPK_WSD_EXPONENTIAL:
        return 2.0 * pow(0.5, ratio) - 1.0;
    case DCPK_WSD_MINUS_SQRT:
        break;
    }
    return 1.0 - sqrt(ratio);
}

static double wsd_lr(const struct dcpk_schedule *s)
{
    const int64_t first = s->lr_decay_steps - s->wsd_decay_steps;
    double left = 1.0;

    if (s->num_steps > first)
        left = wsd_left(s->wsd_style, (double)(s->num_steps - first) / (double)s->wsd_decay_steps);
    return s->min_lr + left * (s->max_lr - s->min_lr);
}

static double inverse_sqrt_lr(const struct dcpk_schedule *s)
{
    const double warm = fmax(s->lr_warmup_steps, 1), n = fmax((double)s->num_steps, 1);

    return fmax(s->min_lr, s->max_lr * pow(warm, 0.5) / pow(n, 0.5));
}

double dcpk_schedule_lr(const struct dcpk_schedule *schedule)
{
    const struct dcpk_schedule *s = schedule;
    const double n = (double)s->num_steps, warm = s->lr_warmup_steps;
    const double ratio = (n - warm) / ((double)s->lr_decay_steps - warm);

    if (warm > 0 && n <= warm)
        return s->init_lr + (s->max_lr - s->init_lr) * n / warm;
    if (s->lr_style == DCPK_LR_CONSTANT)
        return s->max_lr;
    if (s->num_steps > s->lr_decay_steps)
        return s->min_lr;
    switch (s->lr_style) {
    case DCPK_LR_INVERSE_SQRT:
        return inverse_sqrt_lr(s);
    case DCPK_LR_LINEAR:
        return s->min_lr + (1.0 - ratio) * (s->max_lr - s->min_lr);
    case DCPK_LR_COSINE:
        return s->min_lr + half_cosine(ratio) * (s->max_lr - s->min_lr);
    case DCPK_LR_WSD:
    case DCPK_LR_CONSTANT:
        break;
    }
    return wsd_lr(s);
}

double dcpk_schedule_wd(const struct dcpk_schedule *schedule)
{
    const struct dcpk_schedule *s = schedule;
    const double ratio = (double)s->num_steps / (double)s->wd_incr_steps;

    if (s->num_steps > s->wd_incr_steps || s->wd_style == DCPK_WD_CONSTANT)
        return s->end_wd;
    if (s->wd_style == DCPK_WD_COSINE)
        return s->start_wd + half_cosine(1 - ratio) * (s->end_wd - s->start_wd);
    return s->start_wd + ratio * (s->end_wd - s->start_wd);
}

void dcpk_schedule_step(struct dcpk_schedule *schedule, int64_t n_samples)
{
    schedule->num_steps += n_samples;
}

/* A float in Python only where it was multiplied by a fraction. */
static const struct dcpk_value *warmup_value(const struct dcpk_schedule *s,
                                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    if (s->has_warmup_fraction)
        return dcpk_value_float(arena, s->lr_warmup_steps, err);
    return dcpk_value_int(arena, (int64_t)s->lr_warmup_steps, err);
}

const struct dcpk_value *dcpk_schedule_state(const struct dcpk_schedule *schedule,
                                             struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_schedule *s = schedule;
    struct dcpk_dict state = {.arena = arena, .err = err};

    dcpk_dict_put(&state, "max_lr", dcpk_value_float(arena, s->max_lr, err));
    dcpk_dict_put(&state, "lr_warmup_steps", warmup_value(s, arena, err));
    dcpk_dict_put(&state, "num_steps", dcpk_value_int(arena, s->num_steps, err));
    dcpk_dict_put(&state, "lr_decay_style", dcpk_value_str(arena, lr_names[s->lr_style], err));
    dcpk_dict_put(&state, "lr_decay_steps", dcpk_value_int(arena, s->lr_decay_steps, err));
    dcpk_dict_put(&state, "min_lr", dcpk_value_float(arena, s->min_lr, err));
    dcpk_dict_put(&state, "start_wd", dcpk_value_float(arena, s->start_wd, err));
    dcpk_dict_put(&state, "end_wd", dcpk_value_float(arena, s->end_wd, err));
    dcpk_dict_put(&state, "wd_incr_style", dcpk_value_str(arena, wd_names[s->wd_style], err));
    dcpk_dict_put(&state, "wd_incr_steps", dcpk_value_int(arena, s->wd_incr_steps, err));
    return dcpk_dict_end(&state);
}

/* The state that is loaded, and the rule for it. */
struct loading {
    const struct dcpk_value *state;
    const struct dcpk_train_optim *options;
};

/* The first of the names, newest release first, that the checkpoint has. Optional ones: NULL. */
static const struct dcpk_value *saved_value(const struct dcpk_value *state,
                                            const char *const names[3])
{
    const struct dcpk_value *v = NULL;

    for (int i = 0; i < 3 && v == NULL && names[i] != NULL; i++)
        v = dcpk_value_get(state, names[i]);
    return v;
}

/* Megatron's _check_and_set of a number. */
static dcpk_status load_number(const struct loading *l, const char *const names[3], double *value,
                               struct dcpk_error *err)
{
    const struct dcpk_value *v = saved_value(l->state, names);
    double saved;

    if (!dcpk_value_as_float(v, &saved))
        return dcpk_fail(err, DCPK_EFORMAT, "the scheduler's state has no number '%s'", names[0]);
    if (l->options->overrides_schedule)
        return DCPK_OK;
    if (!isfinite(saved))
        return dcpk_fail(err, DCPK_EFORMAT, "the scheduler's '%s' is %g, not a finite number",
                         names[0], saved);
    if (!l->options->uses_saved_schedule && saved != *value)
        return dcpk_fail_fix(err, DCPK_EMISMATCH, DCPK_FIX_SCHEDULE,
                             "the schedule's %s is %.17g here and %.17g in the checkpoint",
                             names[0], *value, saved);
    *value = saved;
    return DCPK_OK;
}

static dcpk_status load_count(const struct loading *l, const char *const names[3], int64_t *value,
                              struct dcpk_error *err)
{
    double number = (double)*value;

    if (load_number(l, names, &number, err) != DCPK_OK)
        return err->status;
    if (!(number >= 0 && number < 0x1p53) || number != floor(number))
        return dcpk_fail(err, DCPK_EFORMAT, "the scheduler's '%s' is %g, not a number of samples",
                         names[0], number);
    *value = (int64_t)number;
    return DCPK_OK;
}

/* A style's name; styles: those that there are. */
static dcpk_status load_style(const struct loading *l, const char *const names[3],
                              const char *const *styles, size_t n_styles, unsigned *style,
                              struct dcpk_error *err)
{
    const char *saved = dcpk_value_as_str(saved_value(l->state, names));
    unsigned found;

    if (saved == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "the scheduler's state has no text '%s'", names[0]);
    if (l->options->overrides_schedule)
        return DCPK_OK;
    if (!l->options->uses_saved_schedule && strcmp(saved, styles[*style]) != 0)
        return dcpk_fail_fix(err, DCPK_EMISMATCH, DCPK_FIX_SCHEDULE,
                             "the schedule's %s is '%s' here and '%s' in the checkpoint", names[0],
                             styles[*style], saved);
    if (style_named("the checkpoint's schedule", styles, n_styles, saved, &found, err) != DCPK_OK)
        return err->status;
    *style = found;
    return DCPK_OK;
}

#define NAMES(...)                                                                                 \
    (const char *const[3])                                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* With the number its kind is the checkpoint's, so that the next save has it, too. */
static dcpk_status load_warmup(const struct loading *l, struct dcpk_schedule *s,
                               struct dcpk_error *err)
{
    const char *const *names = NAMES("lr_warmup_steps", "warmup_steps", "warmup_iter");

    if (load_number(l, names, &s->lr_warmup_steps, err) != DCPK_OK)
        return err->status;
    if (!l->options->overrides_schedule)
        s->has_warmup_fraction = saved_value(l->state, names)->kind == DCPK_V_FLOAT;
    return DCPK_OK;
}

static dcpk_status load_lr(const struct loading *l, struct dcpk_schedule *s, struct dcpk_error *err)
{
    unsigned style = s->lr_style;

    if (load_number(l, NAMES("max_lr", "start_lr"), &s->max_lr, err) ||
        load_number(l, NAMES("min_lr"), &s->min_lr, err) || load_warmup(l, s, err) ||
        load_count(l, NAMES("lr_decay_steps", "decay_steps", "end_iter"), &s->lr_decay_steps,
                   err) ||
        load_style(l, NAMES("lr_decay_style", "decay_style"), lr_names, DCPK_COUNT(lr_names),
                   &style, err))
        return err->status;
    s->lr_style = (enum dcpk_lr_style)style;
    return DCPK_OK;
}

/* Releases without weight decay in their schedule saved none of it. */
static dcpk_status load_wd(const struct loading *l, struct dcpk_schedule *s, struct dcpk_error *err)
{
    unsigned style = s->wd_style;

    if (dcpk_value_get(l->state, "start_wd") == NULL)
        return DCPK_OK;
    if (load_number(l, NAMES("start_wd"), &s->start_wd, err) ||
        load_number(l, NAMES("end_wd"), &s->end_wd, err) ||
        load_count(l, NAMES("wd_incr_steps"), &s->wd_incr_steps, err) ||
        load_style(l, NAMES("wd_incr_style"), wd_names, DCPK_COUNT(wd_names), &style, err))
        return err->status;
    s->wd_style = (enum dcpk_wd_style)style;
    return DCPK_OK;
}

dcpk_status dcpk_schedule_load(const struct dcpk_value *state,
                               const struct dcpk_train_optim *options,
                               struct dcpk_schedule *schedule, struct dcpk_error *err)
{
    const struct loading l = {state, options};
    /* num_steps is the checkpoint's whatever the options. */
    const struct loading steps = {state, &(struct dcpk_train_optim){.uses_saved_schedule = true}};
    struct dcpk_schedule s = *schedule;

    if (options->overrides_schedule && options->uses_saved_schedule)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the schedule cannot both be the checkpoint's and override it");
    if (load_lr(&l, &s, err) || load_wd(&l, &s, err) ||
        load_count(&steps, NAMES("num_steps", "num_iters"), &s.num_steps, err) ||
        schedule_check(&s, err))
        return err->status;
    *schedule = s;
    return DCPK_OK;
}
