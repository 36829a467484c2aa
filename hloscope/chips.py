"""The chips that hloscope knows: their peaks, and how to compile for one that is not there.

One table, ``CHIPS``. A figure that no source gives is ``None``, never a guess,
and each chip names its sources. Peaks are dense (no structured sparsity).
This file imports nothing of JAX.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from hloscope.errors import TargetError

__all__ = [
    "CHIPS",
    "Chip",
    "ChipKind",
    "GpuConfig",
    "Target",
    "chip_of_device_kind",
    "kind_of_platform",
    "parse_target",
]

_T = 1e12
_GIB = 2**30


class ChipKind(StrEnum):
    """What compiles for the chip."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """What XLA's GPU compiler asks about a card, in the words of its target config.

    Attributes:
        description: The card's name as the driver gives it.
        compute_capability: Major and minor version.
        accelerated: Whether the architecture-specific instructions of that
            version (the ``a`` of ``sm_90a``) may be used.
        core_count: Streaming multiprocessors.
        fpus_per_core: Float32 lanes of one multiprocessor.
        clock_rate_ghz: Boost clock.
        threads_per_core_limit: Resident threads of one multiprocessor.
        shared_memory_per_core: Bytes of shared memory of one multiprocessor.
        shared_memory_per_block_optin: Bytes that one block may ask for.
        l2_cache_size: Bytes.
        memory_bandwidth: Bytes a second.
        device_memory_size: Bytes.
    """

    description: str
    compute_capability: tuple[int, int]
    core_count: int
    fpus_per_core: int
    clock_rate_ghz: float
    threads_per_core_limit: int
    shared_memory_per_core: int
    shared_memory_per_block_optin: int
    l2_cache_size: int
    memory_bandwidth: int
    device_memory_size: int
    accelerated: bool = False

    def target_config(self) -> str:
        """The text proto that PJRT's CUDA plug-in takes as ``target_config``.

        The limits that do not differ between the cards (threads of a block,
        registers, grid dimensions) are CUDA's own. The cuDNN version decides
        which convolution and attention calls XLA may choose.
        """
        major, minor = self.compute_capability
        extension = "ACCELERATED_FEATURES" if self.accelerated else "NONE"
        return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: {self.threads_per_core_limit}
  shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared_memory_per_core}
  shared_memory_per_block_optin: {self.shared_memory_per_block_optin}
  core_count: {self.core_count}
  fpus_per_core: {self.fpus_per_core}
  clock_rate_ghz: {self.clock_rate_ghz}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {self.memory_bandwidth}
  l2_cache_size: {self.l2_cache_size}
  device_memory_size: {self.device_memory_size}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{self.description}"
"""


@dataclass(frozen=True, slots=True)
class Chip:
    """One kind of accelerator, as seen by one device of JAX.

    Attributes:
        name: How a target names it.
        vendor: Who makes it.
        kind: Which of XLA's compilers builds for it.
        title: The product that the figures belong to.
        peaks: FLOP/s (integer types: operations a second) by HLO dtype; on
            GPUs ``tf32`` is what a float32 product may use when precision
            allows it. A dtype that is missing has no published figure.
        memory_bandwidth: Bytes a second.
        memory_bytes: Bytes that a program can use, as XLA sees them.
        link_bandwidth: Bytes a second to other chips, over all links, both
            directions together.
        clock_hz: Cycles a second of a TPU's TensorCore, in which its compiler
            counts; ``None`` where no source gives it.
        device_kinds: What ``jax.Device.device_kind`` says on this chip.
        gpu: Description for compiling without the card.
        topology: Dimensions of a TPU topology of one chip.
        megacore: Whether the two cores of a chip act as one device only when
            the topology is asked for by that name.
        sources: Where the figures come from.
        caveat: What a compile without the chip does not check.
    """

    name: str
    vendor: str
    kind: ChipKind
    title: str
    peaks: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    memory_bandwidth: float | None = None
    memory_bytes: int | None = None
    link_bandwidth: float | None = None
    clock_hz: float | None = None
    device_kinds: tuple[str, ...] = ()
    gpu: GpuConfig | None = None
    topology: tuple[int, ...] = ()
    megacore: bool = False
    sources: tuple[str, ...] = ()
    caveat: str | None = None

    @property
    def compiles_here(self) -> bool:
        """Whether hloscope can compile for it where it is not."""
        return self.kind is not ChipKind.GPU or self.gpu is not None

    @property
    def link_bandwidth_one_way(self) -> float | None:
        """Bytes a second that the chip can send, over all links together."""
        return self.link_bandwidth / 2 if self.link_bandwidth is not None else None


@dataclass(frozen=True, slots=True)
class Target:
    """Chips to compile for.

    Attributes:
        text: What the user wrote, normalized: ``h100:8``, ``v5e:2x4``, ``local``.
        chip: The chip, or ``None`` for ``local``, which only the worker can see.
        devices: How many JAX devices, or ``None`` for ``local``.
        topology: Dimensions of a TPU topology; empty for the others.
    """

    text: str
    chip: Chip | None
    devices: int | None
    topology: tuple[int, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether it means what is attached to this machine."""
        return self.chip is None

    @property
    def topology_name(self) -> str:
        """The name under which libtpu knows the topology, for example ``v5e:2x4``."""
        name = self.chip.name if self.chip is not None else "local"
        return f"{name}:{'x'.join(map(str, self.topology))}"


_NO_CUDNN_ATTENTION = (
    "cuDNN attention needs compute capability 8.0, which is not checked at compile time; "
)
_UNTUNED = "nothing is autotuned without the card, so library choices can differ from a run on it"
_CUDA_GUIDE = "CUDA C++ programming guide, technical specifications per compute capability"
_XLA_SPEC = "OpenXLA target_config/specs/{}.txtpb (what XLA reads from the card)"
_LIBTPU = "usable memory: libtpu 0.0.50's own out-of-memory message for a program too large"
_AMD_CARD = "memory: as ROCm's runtime reports it to XLA"
_AMD_ONLY_HELD = "hloscope does not compile for it: recordings and modules are held against it"
_CLOCK = (
    "clock: follows from the bf16 peak and the units in Cloud TPU documentation "
    "({} with {} arrays of 128x128 multiply-adds in all)"
)


def _chips() -> Mapping[str, Chip]:
    table = (
        Chip(
            name="cpu",
            vendor="any",
            kind=ChipKind.CPU,
            title="this machine's processor",
            device_kinds=("cpu",),
            # The processor is whatever machine runs the capture: no figure holds for all.
            sources=("no figures: they depend on the machine",),
        ),
        Chip(
            name="h100",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="H100 SXM5 80 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 989.4 * _T,
                    "f16": 989.4 * _T,
                    "tf32": 494.7 * _T,
                    "f32": 66.9 * _T,
                    "f64": 66.9 * _T,
                    "f8e4m3fn": 1978.9 * _T,
                    "f8e5m2": 1978.9 * _T,
                    "s8": 1978.9 * _T,
                }
            ),
            memory_bandwidth=3_352_320_000_000,
            memory_bytes=84_942_979_072,
            link_bandwidth=900e9,
            device_kinds=("NVIDIA H100 80GB HBM3",),
            gpu=GpuConfig(
                description="NVIDIA H100 80GB HBM3",
                compute_capability=(9, 0),
                accelerated=True,
                core_count=132,
                fpus_per_core=128,
                clock_rate_ghz=1.98,
                threads_per_core_limit=2048,
                shared_memory_per_core=233_472,
                shared_memory_per_block_optin=232_448,
                l2_cache_size=52_428_800,
                memory_bandwidth=3_352_320_000_000,
                device_memory_size=84_942_979_072,
            ),
            sources=(
                "peaks, NVLink: NVIDIA H100 Tensor Core GPU Architecture whitepaper, H100 SXM5",
                "card: " + _XLA_SPEC.format("h100_sxm"),
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="a100",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="A100 SXM4 80 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 312 * _T,
                    "f16": 312 * _T,
                    "tf32": 156 * _T,
                    "f32": 19.5 * _T,
                    "f64": 19.5 * _T,
                    "s8": 624 * _T,
                }
            ),
            memory_bandwidth=2_039_040_000_000,
            memory_bytes=85_100_068_864,
            link_bandwidth=600e9,
            device_kinds=("NVIDIA A100-SXM4-80GB",),
            gpu=GpuConfig(
                description="NVIDIA A100-SXM4-80GB",
                compute_capability=(8, 0),
                core_count=108,
                fpus_per_core=64,
                clock_rate_ghz=1.41,
                threads_per_core_limit=2048,
                shared_memory_per_core=167_936,
                shared_memory_per_block_optin=166_912,
                l2_cache_size=41_943_040,
                memory_bandwidth=2_039_040_000_000,
                device_memory_size=85_100_068_864,
            ),
            sources=(
                "peaks, NVLink: NVIDIA A100 Tensor Core GPU datasheet, SXM 80 GB",
                "card: " + _XLA_SPEC.format("a100_sxm_80"),
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="l4",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="L4 24 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 121 * _T,
                    "f16": 121 * _T,
                    "tf32": 60 * _T,
                    "f32": 30.3 * _T,
                    "f8e4m3fn": 242.5 * _T,
                    "f8e5m2": 242.5 * _T,
                    "s8": 242.5 * _T,
                }
            ),
            memory_bandwidth=300e9,
            memory_bytes=24_000_000_000,
            link_bandwidth=64e9,
            device_kinds=("NVIDIA L4",),
            gpu=GpuConfig(
                description="NVIDIA L4",
                compute_capability=(8, 9),
                core_count=58,
                fpus_per_core=128,
                clock_rate_ghz=2.04,
                threads_per_core_limit=1536,
                shared_memory_per_core=102_400,
                shared_memory_per_block_optin=101_376,
                l2_cache_size=50_331_648,
                memory_bandwidth=300_000_000_000,
                device_memory_size=24_000_000_000,
            ),
            sources=(
                "peaks (half of the sparse figures), memory, PCIe: NVIDIA L4 datasheet",
                "card: NVIDIA Ada GPU architecture whitepaper; " + _CUDA_GUIDE,
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="rtx4080",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="GeForce RTX 4080 16 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 97.5 * _T,
                    "f16": 97.5 * _T,
                    "tf32": 48.7 * _T,
                    "f32": 48.7 * _T,
                    "f8e4m3fn": 194.9 * _T,
                    "f8e5m2": 194.9 * _T,
                    "s8": 389.9 * _T,
                }
            ),
            memory_bandwidth=716_800_000_000,
            memory_bytes=16_000_000_000,
            device_kinds=("NVIDIA GeForce RTX 4080",),
            gpu=GpuConfig(
                description="NVIDIA GeForce RTX 4080",
                compute_capability=(8, 9),
                core_count=76,
                fpus_per_core=128,
                clock_rate_ghz=2.505,
                threads_per_core_limit=1536,
                shared_memory_per_core=102_400,
                shared_memory_per_block_optin=101_376,
                l2_cache_size=67_108_864,
                memory_bandwidth=716_800_000_000,
                device_memory_size=16_000_000_000,
            ),
            sources=(
                "peaks (float32 accumulation), card: NVIDIA Ada GPU architecture whitepaper, "
                "RTX 4080 16 GB",
                "limits: " + _CUDA_GUIDE,
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="v100",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="V100 SXM2 16 GB",
            peaks=MappingProxyType({"f16": 125 * _T, "f32": 15.7 * _T, "f64": 7.8 * _T}),
            memory_bandwidth=898_048_000_000,
            memory_bytes=16_935_682_048,
            link_bandwidth=300e9,
            device_kinds=("Tesla V100-SXM2-16GB",),
            gpu=GpuConfig(
                description="Tesla V100-SXM2-16GB",
                compute_capability=(7, 0),
                core_count=80,
                fpus_per_core=64,
                clock_rate_ghz=1.53,
                threads_per_core_limit=2048,
                shared_memory_per_core=98_304,
                shared_memory_per_block_optin=98_304,
                l2_cache_size=6_291_456,
                memory_bandwidth=898_048_000_000,
                device_memory_size=16_935_682_048,
            ),
            sources=(
                "peaks, NVLink: NVIDIA V100 Tensor Core GPU datasheet, SXM2",
                "card: " + _XLA_SPEC.format("v100"),
            ),
            caveat=_NO_CUDNN_ATTENTION + _UNTUNED,
        ),
        Chip(
            name="t4",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="T4 16 GB",
            peaks=MappingProxyType({"f16": 65 * _T, "f32": 8.1 * _T, "s8": 130 * _T}),
            memory_bandwidth=320e9,
            memory_bytes=16_000_000_000,
            link_bandwidth=32e9,
            device_kinds=("Tesla T4",),
            gpu=GpuConfig(
                description="Tesla T4",
                compute_capability=(7, 5),
                core_count=40,
                fpus_per_core=64,
                clock_rate_ghz=1.59,
                threads_per_core_limit=1024,
                shared_memory_per_core=65_536,
                shared_memory_per_block_optin=65_536,
                l2_cache_size=4_194_304,
                memory_bandwidth=320_000_000_000,
                device_memory_size=16_000_000_000,
            ),
            sources=(
                "peaks, memory, PCIe: NVIDIA T4 datasheet",
                "card: NVIDIA Turing GPU architecture whitepaper; " + _CUDA_GUIDE,
            ),
            caveat=_NO_CUDNN_ATTENTION + _UNTUNED,
        ),
        Chip(
            name="b200",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="B200 (HGX)",
            peaks=MappingProxyType(
                {
                    "bf16": 2250 * _T,
                    "f16": 2250 * _T,
                    "tf32": 1100 * _T,
                    "f32": 75 * _T,
                    "f64": 37 * _T,
                    "f8e4m3fn": 4500 * _T,
                    "f8e5m2": 4500 * _T,
                    "f4e2m1fn": 9000 * _T,
                    "s8": 4500 * _T,
                }
            ),
            memory_bandwidth=7_672_320_000_000,
            memory_bytes=191_514_411_008,
            link_bandwidth=1800e9,
            device_kinds=("NVIDIA B200",),
            gpu=GpuConfig(
                description="NVIDIA B200",
                compute_capability=(10, 0),
                accelerated=True,
                core_count=148,
                fpus_per_core=128,
                clock_rate_ghz=1.965,
                threads_per_core_limit=2048,
                shared_memory_per_core=233_472,
                shared_memory_per_block_optin=232_448,
                l2_cache_size=132_644_864,
                memory_bandwidth=7_672_320_000_000,
                device_memory_size=191_514_411_008,
            ),
            sources=(
                "peaks, NVLink: NVIDIA Blackwell datasheet, HGX B200, dense, per GPU",
                "card: " + _XLA_SPEC.format("b200"),
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="rtx5090",
            vendor="NVIDIA",
            kind=ChipKind.GPU,
            title="GeForce RTX 5090 32 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 209.5 * _T,
                    "f16": 209.5 * _T,
                    "tf32": 104.8 * _T,
                    "f32": 104.8 * _T,
                    "f8e4m3fn": 419 * _T,
                    "f8e5m2": 419 * _T,
                    "f4e2m1fn": 1676 * _T,
                    "s8": 838 * _T,
                }
            ),
            memory_bandwidth=1_792_000_000_000,
            memory_bytes=32_000_000_000,
            device_kinds=("NVIDIA GeForce RTX 5090",),
            gpu=GpuConfig(
                description="NVIDIA GeForce RTX 5090",
                compute_capability=(12, 0),
                core_count=170,
                fpus_per_core=128,
                clock_rate_ghz=2.407,
                threads_per_core_limit=1536,
                shared_memory_per_core=102_400,
                shared_memory_per_block_optin=101_376,
                l2_cache_size=100_663_296,
                memory_bandwidth=1_792_000_000_000,
                device_memory_size=32_000_000_000,
            ),
            sources=(
                "peaks (float32 accumulation), card: NVIDIA RTX Blackwell GPU architecture "
                "whitepaper, RTX 5090",
                "limits: " + _CUDA_GUIDE,
            ),
            caveat=_UNTUNED,
        ),
        Chip(
            name="mi300x",
            vendor="AMD",
            kind=ChipKind.GPU,
            title="Instinct MI300X 192 GB",
            peaks=MappingProxyType(
                {
                    "bf16": 1307.4 * _T,
                    "f16": 1307.4 * _T,
                    "tf32": 653.7 * _T,
                    "f32": 163.4 * _T,
                    "f64": 163.4 * _T,
                    "f8e4m3fnuz": 2614.9 * _T,
                    "f8e5m2fnuz": 2614.9 * _T,
                    "s8": 2614.9 * _T,
                }
            ),
            memory_bandwidth=5300e9,
            memory_bytes=206_141_652_992,
            link_bandwidth=896e9,
            device_kinds=("AMD Instinct MI300X",),
            sources=(
                "peaks (matrix units), memory, Infinity Fabric (7 links of 128 GB/s): AMD Instinct "
                "MI300X data sheet",
                _AMD_CARD,
            ),
            caveat=_AMD_ONLY_HELD,
        ),
        Chip(
            name="mi355x",
            vendor="AMD",
            kind=ChipKind.GPU,
            title="Instinct MI355X 288 GB",
            # It has no TensorFloat-32, unlike the MI300X.
            peaks=MappingProxyType(
                {
                    "bf16": 2516.6 * _T,
                    "f16": 2516.6 * _T,
                    "f32": 157.3 * _T,
                    "f64": 78.6 * _T,
                    "f8e4m3fn": 5033.2 * _T,
                    "f8e5m2": 5033.2 * _T,
                    "f4e2m1fn": 10_066.3 * _T,
                    "s8": 5033.2 * _T,
                }
            ),
            memory_bandwidth=8000e9,
            memory_bytes=309_220_868_096,
            link_bandwidth=1075.2e9,
            device_kinds=("AMD Instinct MI355X",),
            sources=(
                "peaks (matrix units), memory, Infinity Fabric (7 links of 153.6 GB/s): AMD "
                "Instinct MI355X data sheet",
                _AMD_CARD,
            ),
            caveat=_AMD_ONLY_HELD,
        ),
        Chip(
            name="v4",
            vendor="Google",
            kind=ChipKind.TPU,
            title="TPU v4",
            peaks=MappingProxyType({"bf16": 275 * _T, "s8": 275 * _T}),
            memory_bandwidth=1200e9,
            memory_bytes=int(30.75 * _GIB),
            clock_hz=1.05e9,
            device_kinds=("TPU v4",),
            topology=(1, 1, 1),
            megacore=True,
            sources=(
                "peaks, bandwidth: Cloud TPU documentation, TPU v4",
                "clock: Jouppi et al., TPU v4, ISCA 2023, table 4",
                _LIBTPU,
            ),
        ),
        Chip(
            name="v5e",
            vendor="Google",
            kind=ChipKind.TPU,
            title="TPU v5e",
            peaks=MappingProxyType({"bf16": 197 * _T, "s8": 393 * _T}),
            memory_bandwidth=819e9,
            memory_bytes=int(15.75 * _GIB),
            link_bandwidth=400e9,
            clock_hz=1.5e9,
            device_kinds=("TPU v5 lite", "TPU v5e"),
            topology=(1, 1),
            sources=(
                "peaks, bandwidth, ICI: Cloud TPU documentation, TPU v5e",
                _CLOCK.format("one core", "4"),
                _LIBTPU,
            ),
        ),
        Chip(
            name="v5p",
            vendor="Google",
            kind=ChipKind.TPU,
            title="TPU v5p",
            # The documentation gives no integer figure for this chip.
            peaks=MappingProxyType({"bf16": 459 * _T}),
            memory_bandwidth=2765e9,
            memory_bytes=int(95.73 * _GIB),
            link_bandwidth=1200e9,
            clock_hz=1.75e9,
            device_kinds=("TPU v5", "TPU v5p"),
            topology=(1, 1, 1),
            sources=(
                "peaks, bandwidth, ICI (4800 Gbit/s one way): Cloud TPU documentation, TPU v5p",
                _CLOCK.format("two cores", "8"),
                _LIBTPU,
            ),
        ),
        Chip(
            name="v6e",
            vendor="Google",
            kind=ChipKind.TPU,
            title="TPU v6e (Trillium)",
            peaks=MappingProxyType({"bf16": 918 * _T, "s8": 1836 * _T}),
            memory_bandwidth=1638e9,
            memory_bytes=int(31.24 * _GIB),
            link_bandwidth=800e9,
            device_kinds=("TPU v6 lite", "TPU v6e"),
            topology=(1, 1),
            sources=("peaks, bandwidth, ICI: Cloud TPU documentation, TPU v6e", _LIBTPU),
        ),
    )
    return MappingProxyType({chip.name: chip for chip in table})


CHIPS: Mapping[str, Chip] = _chips()

_MAX_DEVICES = 65_536


def parse_target(text: str) -> Target:
    """Read a target: a chip, and how many of it.

    ``cpu``, ``cpu:8`` (simulated devices), ``h100``, ``h100:8``, ``v5e`` (one
    chip), ``v5e:2x4``, ``v5p:2x2x1``, or ``local`` for what is attached.

    Raises:
        TargetError: The chip is unknown (the nearest names are given) or the
            count or topology cannot be meant.
    """
    wanted = text.strip().lower()
    name, colon, count = wanted.partition(":")
    if name == "local":
        if colon:
            raise TargetError(
                "`local` takes no device count: it means all that is attached",
                place=f"target {text!r}",
                hint="Write `local`, or name a chip, for example `cpu:8` or `h100:8`.",
            )
        return Target(text="local", chip=None, devices=None)
    chip = CHIPS.get(name)
    if chip is None:
        raise TargetError(
            f"there is no chip called {name!r}" if name else "the target is empty",
            place=f"target {text!r}",
            hint=_nearest(name),
        )
    if chip.kind is ChipKind.TPU:
        return _tpu_target(text, chip, count if colon else None)
    if not colon:
        return Target(text=name, chip=chip, devices=1)
    if not re.fullmatch(r"[0-9]{1,6}", count) or not 1 <= int(count) <= _MAX_DEVICES:
        raise TargetError(
            f"{count!r} is not a number of devices",
            place=f"target {text!r}",
            hint=f"Write `{name}` for one device or, for example, `{name}:8`.",
        )
    devices = int(count)
    return Target(text=f"{name}:{devices}" if devices > 1 else name, chip=chip, devices=devices)


def _tpu_target(text: str, chip: Chip, layout: str | None) -> Target:
    rank = len(chip.topology)
    if layout is None:
        return Target(text=chip.name, chip=chip, devices=1, topology=chip.topology)
    example = "2x2" if rank == 2 else "2x2x1"
    dims = tuple(int(d) for d in layout.split("x") if re.fullmatch(r"[1-9][0-9]{0,3}", d))
    if len(dims) != rank or len(dims) != layout.count("x") + 1 or math.prod(dims) > _MAX_DEVICES:
        raise TargetError(
            f"{layout!r} is not a topology of {chip.title}: it has {rank} dimensions",
            place=f"target {text!r}",
            hint=f"Write `{chip.name}` for one chip or, for example, `{chip.name}:{example}`.",
        )
    return Target(
        text=f"{chip.name}:{'x'.join(map(str, dims))}" if math.prod(dims) > 1 else chip.name,
        chip=chip,
        devices=math.prod(dims),
        topology=dims,
    )


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [*CHIPS, "local"], n=3, cutoff=0.5)
    known = ", ".join([*CHIPS, "local"])
    meant = f"Did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
    return f"{meant}Known: {known}."


def kind_of_platform(platform: str) -> ChipKind:
    """The compiler of what JAX calls a platform; XLA's for CPUs where it is none of the table's."""
    kinds = {"gpu": ChipKind.GPU, "cuda": ChipKind.GPU, "tpu": ChipKind.TPU}
    return kinds.get(platform, ChipKind.CPU)


def chip_of_device_kind(device_kind: str) -> Chip | None:
    """The chip whose devices call themselves ``device_kind`` in JAX, if it is in the table."""
    for chip in CHIPS.values():
        if device_kind in chip.device_kinds:
            return chip
    return None
