# SPDX-License-Identifier: Apache-2.0
import os

from spack.package import *

try:  # Spack 1.0 keeps the build systems beside its packages
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:
    pass


class Preload(CMakePackage, CudaPackage):
    """Keeps the weights of large language models resident in GPU memory and serves them to inference
    engines, which map them in milliseconds."""

    # The clone that this recipe lies in.
    git = "file://" + os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))

    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="Jobs of more than one rank")
    variant("nccl", default=True, when="+cuda", description="Exchange weights between GPUs of several hosts")
    variant("prometheus", default=True, description="/metrics for Prometheus")
    variant("libarchive", default=True, description="Bundles of the caches that a warm-up filled")
    variant("liburing", default=True, description="Direct reads through io_uring")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("fmt")
    depends_on("spdlog")
    depends_on("cxxopts", type="build")
    depends_on("nlohmann-json@3.9:", type="build")
    depends_on("openssl@3:")
    depends_on("python@3.9:", type="run")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")
    depends_on("prometheus-cpp", when="+prometheus")
    depends_on("liburing@2:", when="+liburing")
    depends_on("libarchive@3:", when="+libarchive")
    depends_on("googletest +gmock", type="test")

    conflicts("%gcc@:11", msg="C++20 as preload uses it needs GCC 12 or later")
    conflicts("platform=darwin", msg="memfds, SCM_RIGHTS and CUDA VMM are Linux's")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("PRELOAD_CUDA", "cuda"),
            self.define_from_variant("PRELOAD_MPI", "mpi"),
            self.define("PRELOAD_NCCL", self.spec.satisfies("+nccl")),
            self.define_from_variant("PRELOAD_URING", "liburing"),
            self.define_from_variant("PRELOAD_PROMETHEUS", "prometheus"),
            self.define_from_variant("PRELOAD_LIBARCHIVE", "libarchive"),
            self.define("PRELOAD_BUILD_TESTS", self.run_tests),
            self.define("PRELOAD_BUILD_BENCH", False),
            self.define("PRELOAD_WERROR", False),
        ]
        architectures = self.spec.variants["cuda_arch"].value if self.spec.satisfies("+cuda") else ("none",)
        if "none" not in architectures:
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", list(architectures)))
        return args

    def setup_run_environment(self, env):
        for libdir in ("lib", "lib64"):
            package = os.path.join(self.prefix, libdir, "preload", "python")
            if os.path.isdir(package):
                env.prepend_path("PYTHONPATH", package)
