# docs/install.md says how to use this recipe. It has no URL: the sources are those of a checkout.
from spack.package import *


class Zero3d(CMakePackage, CudaPackage):
    """Trains GPT and Llama models that do not fit on one device: ZeRO data parallelism, tensor
    parallelism and pipeline stages, each with each."""

    version("0.1.0")

    variant("mpi", default=True, description="Connect ranks over MPI too, not over TCP only")
    variant("tests", default=False, description="Build the tests")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("onednn@2 cpu_runtime=omp")
    depends_on("libyaml")
    depends_on("hwloc")
    depends_on("xxhash")
    depends_on("hdf5~mpi")
    depends_on("utf8proc+shared")
    depends_on("pcre2@10.40:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("liburing", when="platform=linux")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("googletest", type="build", when="+tests")
    depends_on("python", type="build", when="+tests")

    def cmake_args(self):
        arguments = [
            self.define("ZERO3D_WERROR", False),  # another compiler may warn of something new
            self.define_from_variant("ZERO3D_MPI", "mpi"),
            self.define_from_variant("ZERO3D_CUDA", "cuda"),
            self.define_from_variant("ZERO3D_TESTS", "tests"),
        ]
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            architectures = [a + "-real" for a in self.spec.variants["cuda_arch"].value]
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", architectures))
        return arguments
