from __future__ import annotations

import re
from dataclasses import replace

import pytest

from evalray.errors import ConfigError
from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    PeakSource,
    ProbeResult,
    find_device,
    known_devices,
    match_of_all,
    resolve_peak,
)
from evalray.telemetry.hardware import parse_devices

MIB = 2**20

#: NVML or amdsmi name, MiB of memory as reported, bf16 (None: no such unit), fp16, fp8, GB/s.
LISTED = [
    ("NVIDIA H100 80GB HBM3", 81559, 989.4, 989.4, 1978.9, 3350),
    ("NVIDIA H100 PCIe", 81559, 756, 756, 1513, 2000),
    ("NVIDIA H100 NVL", 95830, 835, 835, 1671, 3900),
    ("NVIDIA H200", 143771, 989.4, 989.4, 1978.9, 4800),
    ("NVIDIA H200 NVL", 143771, 835, 835, 1671, 4800),
    ("NVIDIA GH200 480GB", 97871, 989.4, 989.4, 1978.9, 4000),
    ("NVIDIA GH200 144G HBM3e", 146831, 989.4, 989.4, 1978.9, 4900),
    ("NVIDIA B200", 183359, 2250, 2250, 4500, 7700),
    ("NVIDIA B300 SXM6 AC", 275040, 2250, 2250, 4500, 7750),
    ("NVIDIA GB300", 284208, 2500, 2500, 5000, 8000),
    ("NVIDIA H20", 97871, 147, 147, 293, 4000),
    ("NVIDIA L20", 46068, 119, 119, 238, 864),
    ("NVIDIA GB200", 189471, 2500, 2500, 5000, 8000),
    ("NVIDIA A100-SXM4-40GB", 40960, 312, 312, None, 1555),
    ("NVIDIA A100-SXM4-80GB", 81920, 312, 312, None, 2039),
    ("A100-SXM4-40GB", 40537, 312, 312, None, 1555),
    ("NVIDIA A100-PCIE-40GB", 40960, 312, 312, None, 1555),
    ("NVIDIA A100 80GB PCIe", 81920, 312, 312, None, 1935),
    ("NVIDIA A40", 46068, 149.7, 149.7, None, 696),
    ("NVIDIA A30", 24576, 165, 165, None, 933),
    ("NVIDIA A10", 23028, 125, 125, None, 600),
    ("NVIDIA A10G", 23028, 70, 70, None, 600),
    ("NVIDIA L40S", 46068, 362, 362, 733, 864),
    ("NVIDIA L40", 46068, 181.05, 181.05, 362, 864),
    ("NVIDIA L4", 23034, 121, 121, 242, 300),
    ("NVIDIA RTX A6000", 49140, 154.8, 154.8, None, 768),
    ("NVIDIA RTX 6000 Ada Generation", 49140, 364.2, 364.2, 728.5, 960),
    ("NVIDIA GeForce RTX 3090", 24576, 71, 71, None, 936),
    ("NVIDIA GeForce RTX 4090", 24564, 165.2, 165.2, 330.3, 1008),
    ("NVIDIA GeForce RTX 5090", 32607, 209.5, 209.5, 419, 1792),
    ("Tesla T4", 15360, None, 65, None, 320),
    ("Tesla V100-SXM2-16GB", 16160, None, 125, None, 900),
    ("Tesla V100-SXM2-32GB", 32510, None, 125, None, 900),
    ("Tesla V100-PCIE-16GB", 16160, None, 112, None, 900),
    ("Tesla V100-PCIE-32GB", 32510, None, 112, None, 900),
    ("AMD Instinct MI300X", 196592, 1307.4, 1307.4, 2614.9, 5300),
    ("AMD Instinct MI325X", 262128, 1307.4, 1307.4, 2614.9, 6000),
    ("AMD Instinct MI355X", 294896, 2516, 2516, 5033, 8000),
    ("AMD Instinct MI250X", 65520, 191.5, 191.5, None, 1638),
]

UNLISTED = [
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9856),
    ("NVIDIA A100-SXM4-40GB MIG 7g.40gb", 40448),
    ("NVIDIA H100 80GB HBM3", 9856),  # a slice under the whole device's name
    ("NVIDIA H800", 81559),
    ("NVIDIA H800 PCIe", 81559),
    ("NVIDIA H20", 143771),
    ("NVIDIA H20-3e", 143771),
    ("NVIDIA H100 80GB HBM2e", 81559),
    ("NVIDIA H100 NVL", 81559),
    ("NVIDIA H100 PCIe", 95830),
    ("NVIDIA H100 SXM5 64GB", 65247),
    ("NVIDIA A100-SXM4-40GB", 81920),  # memory of another model
    ("NVIDIA A100-PG509-200", 40960),
    ("NVIDIA A100-SXM4-80GB", 40960),
    ("NVIDIA A100-PCIE-40GB", 81920),
    ("NVIDIA A100 80GB PCIe", 40960),
    ("NVIDIA A100X", 81920),
    ("NVIDIA A800-SXM4-80GB", 81920),
    ("NVIDIA A800 80GB PCIe", 81920),
    ("NVIDIA A800-SXM4-40GB", 40960),
    ("NVIDIA A40-48Q", 49140),
    ("NVIDIA A10-24Q", 24576),
    ("GRID A100-10C", 10240),
    ("NVIDIA A10M", 23028),
    ("NVIDIA A10G", 46068),
    ("NVIDIA A30X", 24576),
    ("NVIDIA A1", 23028),
    ("NVIDIA A16", 15356),
    ("NVIDIA A2", 15356),
    ("NVIDIA A4000", 16376),
    ("NVIDIA RTX A4000", 16376),
    ("NVIDIA RTX 4000 Ada Generation", 20475),
    ("Quadro RTX 6000", 24576),
    ("NVIDIA RTX 6000", 49140),
    ("NVIDIA RTX A6000", 24576),
    ("NVIDIA RTX A6000-48Q", 49140),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887),
    ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 16376),
    ("NVIDIA GeForce RTX 3090 Ti", 24564),
    ("NVIDIA GeForce RTX 4090 D", 24564),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376),
    ("NVIDIA GeForce RTX 4090", 49140),  # rebuilt with twice the memory
    ("NVIDIA GeForce RTX 5090 D", 32607),
    ("NVIDIA GeForce RTX 5090 Laptop GPU", 24463),
    ("NVIDIA GeForce RTX 4080 SUPER", 16376),
    ("NVIDIA T4G", 15360),
    ("Tesla T40 24GB", 24576),
    ("NVIDIA T400 4GB", 4096),
    ("NVIDIA L40G", 24576),
    ("NVIDIA L40S-48Q", 49140),
    ("NVIDIA L40S", 23034),
    ("NVIDIA L2", 23034),
    ("Tesla V100-SXM3-32GB", 32510),
    ("Tesla V100S-PCIE-32GB", 32510),
    ("Tesla V100-SXM2-16GB", 32510),
    ("Tesla V100-FHHL-16GB", 16160),
    ("Tesla P100-PCIE-16GB", 16280),
    ("NVIDIA B200 MIG 1g.23gb", 23000),
    ("NVIDIA B2000", 183359),
    ("NVIDIA B300", 275040),
    ("NVIDIA B300 SXM6 AC", 183359),
    ("NVIDIA GB300", 189471),
    ("NVIDIA GH200 120GB", 97871),
    ("NVIDIA GH200 480GB", 146831),
    ("NVIDIA GB10", 122502),
    ("NVIDIA Graphics Device", 81559),
    ("AMD Instinct MI300X VF", 196592),
    ("AMD Instinct MI300A", 131072),
    ("AMD Instinct MI308X", 196592),
    ("AMD Instinct MI350X", 294896),
    ("AMD Instinct MI210", 65520),
    ("AMD Instinct MI250X / MI250", 65520),
    ("AMD Instinct MI250X", 131072),
    ("NVIDIA H100", 81559),
    ("xNVIDIA H200", 143771),
    ("NVIDIA H200x", 143771),
    ("", 81559),
]


@pytest.mark.parametrize(("name", "mib", "bf16", "fp16", "fp8", "gb_s"), LISTED)
def test_a_listed_device_gets_its_own_row(
    name: str, mib: int, bf16: float | None, fp16: float, fp8: float | None, gb_s: float
) -> None:
    spec = find_device(name, mib * MIB).spec
    assert spec is not None
    assert (spec.tflops.get("bf16"), spec.tflops.get("fp16"), spec.tflops.get("fp8")) == (bf16, fp16, fp8)
    assert spec.bandwidth_gb_s == gb_s


@pytest.mark.parametrize(("name", "mib"), UNLISTED)
def test_what_is_not_listed_gets_no_row_and_a_way_out(name: str, mib: int) -> None:
    match = find_device(name, mib * MIB)
    assert match.spec is None
    assert "evalray hardware probe" in match.reason


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA B200 MIG 1g.23gb"])
def test_a_slice_is_told_so(name: str) -> None:
    assert "MIG slice" in find_device(name, None).reason


def test_a_device_that_is_cut_up_has_no_peak_under_its_whole_name() -> None:
    match = find_device("NVIDIA H100 80GB HBM3", 81559 * MIB, sliced=True)
    assert match.spec is None
    assert "MIG" in match.reason


@pytest.mark.parametrize(
    "more",
    [
        " Ti",
        " D",
        " SUPER",
        " Laptop GPU",
        " Max-Q",
        " MIG 1g.10gb",
        "-24Q",
        " PCIe",
        " NVL",
        "S",
        "G",
        "X",
        "M",
        "e",
        "0",
    ],
)
def test_a_name_with_more_to_it_is_another_device_or_none(more: str) -> None:
    own = {name: row for name, *row in LISTED}
    for name, mib, *_ in LISTED:
        spec = find_device(name + more, mib * MIB).spec
        assert spec is None or own[name + more][-1] == spec.bandwidth_gb_s, name + more


def test_without_its_memory_a_name_must_be_enough() -> None:
    spec = find_device("NVIDIA L4").spec
    assert spec is not None
    assert spec.name == "L4"
    assert find_device("AMD Instinct MI250X").spec is None


def test_space_and_case_do_not_hide_a_device() -> None:
    assert find_device("  nvidia  h100 80gb hbm3 ", 81559 * MIB).spec is not None


def test_no_listed_name_fits_two_rows() -> None:
    for name, mib, *_ in LISTED:
        fits = [
            spec.name
            for spec in known_devices()
            if spec.pattern.fullmatch(name) and spec.memory_gib[0] <= mib / 1024 <= spec.memory_gib[1]
        ]
        assert len(fits) == 1, (name, fits)


def test_every_row_is_found_by_some_name_and_says_where_it_is_from() -> None:
    found = {match.spec.name for name, mib, *_ in LISTED if (match := find_device(name, mib * MIB)).spec}
    assert {spec.name for spec in known_devices()} == found
    for spec in known_devices():
        assert spec.source.startswith("https://"), spec.name
        assert spec.says, spec.name
        assert spec.checked is not spec.says.startswith(("not read", "peaks not read")), spec.name
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", spec.date), spec.name


@pytest.mark.parametrize(("name", "unread"), [("NVIDIA GB200", False), ("NVIDIA GeForce RTX 5090", True)])
def test_a_peak_that_was_not_read_at_its_vendor_says_so(name: str, unread: bool) -> None:
    peak = resolve_peak("bf16", match=find_device(name))
    assert peak.flops_per_second
    assert ("not compared with the vendor" in peak.detail) is unread


def test_dense_peaks_of_narrower_dtypes_are_never_sparse() -> None:
    """Sparse figures are twice the dense ones: fp8 at four times bf16 would be one."""
    for spec in known_devices():
        wide = spec.tflops["fp16"]
        limit = 4.01 if "GeForce" in spec.name else 2.1  # GeForce: int8 is not halved as fp32 accumulation is
        for narrow in ("fp8", "int8"):
            assert spec.tflops.get(narrow, 0) <= limit * wide, spec.name


ROW = """
[[device]]
name = "X1"
pattern = 'X1'
memory_gib = [1, 2]
tflops = { fp16 = 1 }
bandwidth_gb_s = 1
source = "https://example.org"
says = "1 TFLOP/s"
checked = false
date = 2026-01-01
"""


def test_a_table_row_is_read() -> None:
    (spec,) = parse_devices(ROW)
    assert (spec.name, spec.tflops["fp16"], spec.tdp_watts, spec.checked) == ("X1", 1.0, None, False)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("fp16 = 1", "fp61 = 1", "fp61"),
        ("fp16 = 1", "fp16 = 0", "above 0"),
        ("'X1'", "'X1('", "unterminated"),
        ("[1, 2]", "[2, 1]", "above 0"),
        ("[1, 2]", "7", "X1"),
        ('source = "https://example.org"', "", "source"),
        ("checked = false", "", "checked"),
        ("checked = false", "checked = 1", "neither true nor false"),
    ],
)
def test_a_wrong_row_is_named(old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match="X1") as caught:
        parse_devices(ROW.replace(old, new))
    assert says in str(caught.value)


# -- which peak is used -----------------------------------------------------------------------------

H100 = find_device("NVIDIA H100 80GB HBM3", 81559 * MIB)
T4 = find_device("Tesla T4", 15360 * MIB)
PROBE = ProbeResult("Some CPU", "cpu", 8, "fp32", 5e11, 1.0, 9, 4e10, 2.0, 9, 1 << 28, 1 << 25, "2026-01-01")


def test_the_table_gives_the_peak_of_the_dtype_and_says_so() -> None:
    peak = resolve_peak("fp8", match=H100)
    assert (peak.flops_per_second, peak.bytes_per_second, peak.dtype) == (1978.9e12, 3350e9, "fp8")
    assert (peak.flops_source, peak.bandwidth_source) == (PeakSource.TABLE, PeakSource.TABLE)
    assert (peak.device, peak.to_dict()["flops_source"]) == ("H100 SXM", "table")
    assert "https://" in peak.detail


@pytest.mark.parametrize(
    ("device", "compute", "dtype", "tflops"),
    [
        (("NVIDIA A100-SXM4-80GB", 81920), "fp8", "bf16", 312),
        (("Tesla T4", 15360), "bf16", "fp16", 65),
        (("Tesla T4", 15360), "fp8", "fp16", 65),
        (("Tesla T4", 15360), "int8", "int8", 130),
    ],
)
def test_a_dtype_the_device_lacks_runs_in_the_next_wider_one(
    device: tuple[str, int], compute: str, dtype: str, tflops: float
) -> None:
    peak = resolve_peak(compute, match=find_device(device[0], device[1] * MIB))
    assert (peak.dtype, peak.flops_per_second) == (dtype, tflops * 1e12)


def test_a_dtype_without_any_peak_gives_none_and_the_reason() -> None:
    peak = resolve_peak("fp32", match=H100)
    assert (peak.flops_per_second, peak.flops_source) == (None, PeakSource.NONE)
    assert peak.bytes_per_second == 3350e9
    assert "fp32" in peak.detail


def test_the_suites_own_figures_win_one_by_one() -> None:
    peak = resolve_peak("bf16", match=H100, probe=PROBE, suite_tflops=500)
    assert (peak.flops_per_second, peak.flops_source) == (500e12, PeakSource.SUITE)
    assert (peak.bytes_per_second, peak.bandwidth_source) == (3350e9, PeakSource.TABLE)


def test_a_suites_zero_is_not_given() -> None:
    peak = resolve_peak("bf16", match=H100, suite_tflops=0, suite_bandwidth_gb_s=0)
    assert (peak.flops_source, peak.bandwidth_source) == (PeakSource.TABLE, PeakSource.TABLE)


def test_an_unknown_device_is_measured_against_the_probe_by_its_own_dtype() -> None:
    peak = resolve_peak("fp16", match=find_device("Some CPU"), probe=PROBE)
    assert (peak.flops_per_second, peak.bytes_per_second, peak.dtype) == (5e11, 4e10, "fp32")
    assert (peak.flops_source, peak.bandwidth_source) == (PeakSource.ACHIEVABLE, PeakSource.ACHIEVABLE)
    assert "achievable" in peak.flops_label
    assert "8 threads" in peak.detail


def test_a_peak_measured_on_a_busy_machine_says_so() -> None:
    assert "busy" not in resolve_peak("bf16", probe=PROBE).detail
    assert "busy" in resolve_peak("bf16", probe=replace(PROBE, flops_spread_pct=80.0)).detail


def test_nothing_known_is_no_peak_and_the_reason() -> None:
    peak = resolve_peak("bf16", match=find_device("Some GPU"))
    assert (peak.flops_per_second, peak.bytes_per_second) == (None, None)
    assert "Some GPU is not in the table" in peak.detail


def _gpu(name: str, mib: int, *, sliced: bool = False) -> DeviceInfo:
    nothing = (EnergyMethod.NONE, None)
    total = mib * MIB
    return DeviceInfo(name, DeviceKind.GPU, name, 0, *nothing, memory_total_bytes=total, sliced=sliced)


H100_NAME, L4_NAME = "NVIDIA H100 80GB HBM3", "NVIDIA L4"


@pytest.mark.parametrize(
    ("gpus", "row", "reason"),
    [
        ([_gpu(H100_NAME, 81559)] * 2, "H100 SXM", ""),
        ([_gpu(H100_NAME, 81559, sliced=True)], None, "MIG"),
        ([_gpu(H100_NAME, 81559), _gpu(L4_NAME, 23034)], None, f"differing GPUs ({H100_NAME}, {L4_NAME})"),
        ([_gpu(H100_NAME, 81559), _gpu("NVIDIA A1", 23034)], None, "differing"),
        ([_gpu("NVIDIA A1", 23034)] * 2, None, "NVIDIA A1 is not in the table"),
    ],
)
def test_an_engine_has_a_peak_where_all_its_gpus_have_the_same(
    gpus: list[DeviceInfo], row: str | None, reason: str
) -> None:
    match = match_of_all(gpus)
    assert (match.spec and match.spec.name) == row
    assert reason in match.reason
