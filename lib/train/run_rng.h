/* SPDX-License-Identifier: Apache-2.0 */
/* run_rng.h - the states of the random generators that a Megatron run has, as its seed leaves them.
 */
/*
 *                           seed + 100 pp
 *      +-------------+------------+--------------------------------------------+
 *    Python        NumPy        torch                     CUDA
 *    MT19937       MT19937      MT19937, CPU       Philox: seed, offset 0
 *   (by array)                               +----------+----------------+
 *                                        default   model-parallel   expert-parallel
 *                                        and data  + 2718 + tp      + 1024
 *                                        parallel
 *
 * Weights, data and dropout of this loop follow from counters (initial.h, tokens.h): it draws
 * nothing from these generators, so that their states stay those of the seed. Megatron's loaders
 * ask for them.
 *
 * Sources: megatron/training/initialize.py _set_random_seed, megatron/training/checkpointing.py
 * get_rng_state, megatron/core/tensor_parallel/random.py model_parallel_cuda_manual_seed @0.14.0 to
 * main; CPython Modules/_randommodule.c random_seed; numpy/random/_mt19937.pyx _legacy_seeding;
 * torch aten/src/ATen/core/MT19937RNGEngine.h, aten/src/ATen/CPUGeneratorImpl.cpp and
 * aten/src/ATen/cuda/CUDAGeneratorImpl.cpp get_state @2.11.
 */
#ifndef DCPK_LIB_TRAIN_RUN_RNG_H
#define DCPK_LIB_TRAIN_RUN_RNG_H

#include "lib/knobs/config.h"
#include "lib/model/model.h"

/*
 * One for each pipeline and tensor rank of config->layout, in `arena`, for the data-parallel ranks
 * all. None (*n is 0) where config->files.no_save_rng is set, and where no Megatron run can have
 * the seed: NumPy takes 1 to 2^32 - 1. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_train_rng(const struct dcpk_train_config *config, struct dcpk_arena *arena,
                           struct dcpk_rng **list, size_t *n, struct dcpk_error *err);

#endif
