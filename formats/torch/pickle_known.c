/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_known.c - the classes, functions and dtypes that checkpoints of Megatron and torch name.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/order.h"

struct known {
    const char *module, *name;
};

/*
 * Sorted by module, then name, by byte value. Sources: torch 2.1 to 2.11
 * distributed/checkpoint/{metadata,filesystem, planner}.py, _utils.py, storage.py,
 * _weights_only_unpickler.py; Megatron core_v0.6.0 to 0.19.0 dist_checkpointing/strategies/torch.py
 * and safe_globals.py; pickles of checkpoints that they wrote. "builtins" stands for Python 2's
 * "__builtin__" too. None of them reaches further than itself: getattr on an object leads to any
 * function there is, so it is none of them (on a class it is read as the nested class's name).
 */
static const struct known known[] = {
    {"_codecs", "encode"},
    {"_io", "BytesIO"},
    {"argparse", "Namespace"},
    {"builtins", "bytearray"},
    {"builtins", "bytes"},
    {"builtins", "frozenset"},
    {"builtins", "set"},
    {"collections", "OrderedDict"},
    {"io", "BytesIO"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"},
    {"megatron.core.enums", "ModelType"},
    {"megatron.core.optimizer", "OptimizerConfig"},
    {"megatron.core.optimizer.optimizer_config", "OptimizerConfig"},
    {"megatron.core.rerun_state_machine", "RerunDiagnostic"},
    {"megatron.core.rerun_state_machine", "RerunMode"},
    {"megatron.core.rerun_state_machine", "RerunState"},
    {"megatron.core.transformer.enums", "AttnBackend"},
    {"megatron.core.transformer.enums", "CudaGraphModule"},
    {"megatron.core.transformer.enums", "CudaGraphScope"},
    {"megatron.core.transformer.enums", "InferenceCudaGraphScope"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.dtypes", "UInt32DType"},
    {"pathlib", "PosixPath"},
    {"pathlib._local", "PosixPath"},
    {"signal", "SIGTERM"},
    {"signal", "Signals"},
    {"torch", "BFloat16Storage"},
    {"torch", "BoolStorage"},
    {"torch", "ByteStorage"},
    {"torch", "CharStorage"},
    {"torch", "ComplexDoubleStorage"},
    {"torch", "ComplexFloatStorage"},
    {"torch", "DoubleStorage"},
    {"torch", "FloatStorage"},
    {"torch", "HalfStorage"},
    {"torch", "IntStorage"},
    {"torch", "LongStorage"},
    {"torch", "QInt32Storage"},
    {"torch", "QInt8Storage"},
    {"torch", "QUInt8Storage"},
    {"torch", "ShortStorage"},
    {"torch", "Size"},
    {"torch", "bfloat16"},
    {"torch", "bits16"},
    {"torch", "bits1x8"},
    {"torch", "bits2x4"},
    {"torch", "bits4x2"},
    {"torch", "bits8"},
    {"torch", "bool"},
    {"torch", "complex128"},
    {"torch", "complex32"},
    {"torch", "complex64"},
    {"torch", "device"},
    {"torch", "float16"},
    {"torch", "float32"},
    {"torch", "float4_e2m1fn_x2"},
    {"torch", "float64"},
    {"torch", "float8_e4m3fn"},
    {"torch", "float8_e4m3fnuz"},
    {"torch", "float8_e5m2"},
    {"torch", "float8_e5m2fnuz"},
    {"torch", "float8_e8m0fnu"},
    {"torch", "int16"},
    {"torch", "int32"},
    {"torch", "int64"},
    {"torch", "int8"},
    {"torch", "qint32"},
    {"torch", "qint8"},
    {"torch", "quint8"},
    {"torch", "uint16"},
    {"torch", "uint32"},
    {"torch", "uint64"},
    {"torch", "uint8"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_qtensor"},
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"},
    {"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {"torch.distributed.checkpoint.filesystem", "_StoragePrefix"},
    {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "Metadata"},
    {"torch.distributed.checkpoint.metadata", "MetadataIndex"},
    {"torch.distributed.checkpoint.metadata", "StorageMeta"},
    {"torch.distributed.checkpoint.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.planner", "BytesIOWriteData"},
    {"torch.distributed.checkpoint.planner", "SavePlan"},
    {"torch.distributed.checkpoint.planner", "TensorWriteData"},
    {"torch.distributed.checkpoint.planner", "WriteItem"},
    {"torch.distributed.checkpoint.planner", "WriteItemType"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "TypedStorage"},
    {"torch.storage", "UntypedStorage"},
    {"types", "SimpleNamespace"},
};

static int compare_known(const void *key, const void *row)
{
    const struct known *a = key, *b = row;
    const int by_module = strcmp(a->module, b->module);

    return by_module != 0 ? by_module : strcmp(a->name, b->name);
}

bool dcpk_pickle_is_known(const char *module, const char *name)
{
    const struct known key = {module, name};

    return bsearch(&key, known, DCPK_COUNT(known), sizeof *known, compare_known) != NULL;
}
