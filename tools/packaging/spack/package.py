# SPDX-License-Identifier: Apache-2.0
# package.py - dcpkit for Spack 1.0 and later. In Python, unlike the rest of tools/, because
# Spack asks for it.
#
# tools/release.sh fills in version and checksum: OUT/dcpkit-VERSION.spack.py is
# packages/dcpkit/package.py of a Spack repository.
# Spack takes the source distribution from the folder that it is started in:
#
#   cd OUT && spack install dcpkit +mpi
import os

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack.package import *


class Dcpkit(CMakePackage):
    """Convert, reshard, inspect and prove checkpoints of Megatron, without Python or GPU."""

    manual_download = True
    url = f"file://{os.getcwd()}/dcpkit-@VERSION@.tar.gz"

    license("Apache-2.0")

    version("@VERSION@", sha256="@SHA256@")

    variant("mpi", default=True, description="The plug-in for mpirun and srun")
    variant("cuda", default=False, description="Move tensors between the memory of NVIDIA GPUs")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cjson")
    depends_on("xxhash")
    depends_on("libdeflate")
    depends_on("pcre2@10.38:")
    depends_on("openssl@3:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("c-blosc")
    depends_on("libarchive@3.4:")
    depends_on("libyaml")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")

    def cmake_args(self):
        return [
            self.define("DCPK_TESTS", False),
            self.define_from_variant("DCPK_MPI", "mpi"),
            self.define_from_variant("DCPK_CUDA", "cuda"),
        ]
