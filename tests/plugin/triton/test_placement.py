"""Where tensors are: on the GPU or on the host, as programs and torch's own functions ask. Skipped without Triton and torch.

Expected places and types are those of a GPU: torch's notes on CUDA semantics and on automatic mixed precision.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None,
    reason="needs triton and torch",
)

TESTS = """
import copy
import io

import numpy as np
import pytest
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.nn.attention.flex_attention import create_block_mask

GPU = torch.device("cuda", 0)
on_gpu, on_host = torch.randn(4, device="cuda"), torch.randn(4)


def test_a_tensor_is_where_it_was_made():
    assert (on_gpu.device, on_gpu.is_cuda, on_gpu.is_cpu, on_gpu.get_device()) == (GPU, True, False, 0)
    assert (on_host.device, on_host.is_cuda, on_host.is_cpu, on_host.get_device()) == (torch.device("cpu"), False, True, -1)
    assert "cuda:0" in repr(on_gpu) and "cuda" not in repr(on_host)
    assert torch.zeros(0, device="cuda").is_cuda and torch.from_numpy(np.zeros(3)).is_cpu
    assert torch.empty_like(on_gpu).is_cuda and on_gpu.new_zeros(3).is_cuda and on_host.new_zeros(3).is_cpu
    assert torch.as_tensor([1], device="cuda").is_cuda and torch.as_tensor(np.zeros(2), device="cuda").is_cuda
    assert torch.as_tensor(on_gpu, device="cuda") is on_gpu


def test_results_are_where_arguments_are():
    assert (on_gpu + 1).is_cuda and (on_host + 1).is_cpu
    assert on_gpu[1:].is_cuda and on_gpu.view(2, 2).T.is_cuda and on_host[1:].is_cpu
    assert torch.cat([on_gpu, on_gpu]).is_cuda and torch.block_diag(on_host, on_host).is_cpu


def test_tensors_without_memory_of_their_own():
    assert on_gpu.to_sparse().is_cuda and on_host.to_sparse().is_cpu and (on_gpu.view(2, 2).to_sparse() * 2).is_cuda
    places = []

    def square(x):
        places.append((x.device.type, (x * 2).device.type, torch.zeros(2).device.type))
        return x * x

    assert torch.func.vmap(square)(on_gpu).is_cuda and torch.func.vmap(square)(on_host).is_cpu
    assert torch.func.grad(lambda x: square(x).sum())(on_gpu).is_cuda
    assert places == [("cuda", "cuda", "cpu"), ("cpu", "cpu", "cpu"), ("cuda", "cuda", "cpu")]
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device="cuda")
    assert mask.kv_indices.is_cuda


def test_what_is_there_is_not_copied():
    assert on_gpu.to("cuda") is on_gpu and on_gpu.cuda() is on_gpu and on_gpu.to(GPU) is on_gpu
    assert on_host.to("cpu") is on_host and on_host.cpu() is on_host
    for moved in (on_host.cuda(), on_host.to("cuda:0"), on_host.to(on_gpu), on_host.to(0)):
        assert moved.is_cuda and moved.data_ptr() != on_host.data_ptr()
    for moved in (on_gpu.cpu(), on_gpu.to("cpu"), on_gpu.to(on_host)):
        assert moved.is_cpu and moved.data_ptr() != on_gpu.data_ptr()
    leaf = torch.randn(4, device="cuda", requires_grad=True)
    leaf.to("cuda").sum().backward()
    assert leaf.grad.is_cuda


def test_modules_and_defaults():
    assert torch.nn.Linear(2, 3).weight.is_cpu and torch.nn.Linear(2, 3).cuda().weight.is_cuda
    assert torch.nn.Linear(2, 3, device="cuda").bias.is_cuda
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda and torch.tensor([1.0]).is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda and torch.tensor([1.0]).is_cuda and torch.get_default_device() == GPU
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).is_cpu


def test_copies_and_files():
    assert copy.deepcopy(on_gpu).is_cuda and copy.deepcopy(on_host).is_cpu
    for tensor in (on_gpu, on_host):
        file = io.BytesIO()
        torch.save(tensor, file)
        for place, expected in ((None, tensor.device), ("cpu", torch.device("cpu")), ("cuda", GPU)):
            file.seek(0)
            loaded = torch.load(file, map_location=place)
            assert loaded.device == expected and loaded.tolist() == tensor.tolist()
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(on_gpu, on_gpu.cpu())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.is_cuda and torch.empty_like(gradient).is_cuda and torch.zeros(3, device="cuda").is_cuda
        assert gradient.cpu().is_cpu and torch.zeros(3).is_cpu
        return gradient * 2


def test_backward_passes():
    x = torch.randn(4, device="cuda", requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.is_cuda and x.grad.tolist() == [2] * 4
    assert torch.autograd.grad(Doubled.apply(x).sum(), x)[0].is_cuda


def test_operators_for_cuda():
    @torch.library.custom_op("gpuperf_test::scaled", mutates_args=(), device_types="cuda")
    def scaled(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda and torch.zeros(2).is_cpu
        return x * 2

    assert scaled(torch.ones(3, device="cuda")).tolist() == [2] * 3
    scaled.register_kernel("cpu")(lambda x: x * 3)
    assert scaled(torch.ones(3, device="cuda")).tolist() == [2] * 3
    assert scaled(torch.ones(3)).tolist() == [3] * 3


def test_functions_of_torch_replaced_for_cuda():
    library = torch.library.Library("aten", "IMPL")
    library.impl("add.Tensor", lambda a, b, alpha=1: torch.full_like(a, 7), "CUDA")
    library.impl("div.Tensor_mode", lambda a, b, rounding_mode: torch.full_like(a, 7), "CUDA")
    x, host = torch.ones(3, device="cuda"), torch.ones(2)
    assert (x + x).tolist() == [7] * 3 and (host + host).tolist() == [2] * 2
    assert torch.div(9.0, 2.0, rounding_mode="trunc").item() == 4
    library._destroy()
    assert (x + x).tolist() == [2] * 3


def test_autocast():
    a, layer = torch.randn(4, 4, device="cuda"), torch.nn.Linear(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        y = layer(a)
        assert y.dtype == torch.float16 and torch.is_autocast_enabled("cuda")
        for single in (y.softmax(-1), y.exp(), y.sum(), torch.nn.functional.layer_norm(y, (4,)), y.sum(0)):
            assert single.dtype == torch.float32
        with torch.autocast("cuda", enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.float16
    assert (a @ a).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.AdamW(layer.parameters())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = layer(a).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 65536


class Cast(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        assert x.dtype == torch.float16
        return x

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        return gradient


def test_functions_that_cast_their_inputs():
    x = torch.ones(4, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        Cast.apply(x).sum().backward()
    assert x.grad.dtype == torch.float32


def test_there_is_one_device():
    named = torch.device("cuda", 1)
    for call in (
        lambda: torch.zeros(2, device="cuda:1"), lambda: torch.zeros(2, device=named), lambda: on_host.to(named),
        lambda: on_host.cuda(1),
        lambda: torch.cuda.set_device(1), lambda: torch.cuda.set_device("cuda:2"),
    ):
        with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal") as caught:
            call()
        assert "there is one device, cuda:0; asked for cuda:" in str(caught.value)
    torch.cuda.set_device(0)
    torch.cuda.set_device("cuda")
    assert torch.zeros(2, device="cuda:0").is_cuda and torch.zeros(2, device=0).is_cuda


def test_memory_is_counted_as_by_the_allocator_of_torch():
    # blocks are multiples of 512 bytes (PyTorch, "CUDA semantics", memory management)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    one = torch.empty(1, device="cuda")
    large = torch.empty(1 << 20, device="cuda")
    on_the_host = torch.empty(1 << 20)
    assert torch.cuda.memory_allocated() - before == 512 + (4 << 20)
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    del large
    assert torch.cuda.memory_allocated() - before == 512
    assert torch.cuda.max_memory_allocated() - before == 512 + (4 << 20)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() - before == 512
    stats = torch.cuda.memory_stats()
    assert stats["num_ooms"] == stats["num_alloc_retries"] == 0
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary()
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated()


def test_the_accelerator():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator().type == "cuda"
    assert (accelerator.device_count(), accelerator.current_device_index()) == (1, 0)
    assert torch.get_device_module() is torch.cuda
    accelerator.set_device_index(0)
    accelerator.synchronize()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        accelerator.set_device_index(1)
    loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2, pin_memory=True)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_streams_events_and_profilers():
    stream = torch.cuda.Stream(priority=-1)
    with stream, torch.cuda.stream(stream):
        torch.empty(3, device="cuda").record_stream(stream)
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    assert torch.cuda.cudart().cudaMemGetInfo(0) == torch.cuda.mem_get_info()
    assert torch.cuda.nvtx.range_push("outer") == 0 and torch.cuda.nvtx.range_push("inner") == 1
    assert torch.cuda.nvtx.range_pop() == 1 and torch.cuda.nvtx.range_pop() == 0
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError):
        torch.cuda.check_error(700)


def test_states_of_generators_are_on_the_host():
    assert torch.cuda.get_rng_state().is_cpu and torch.get_rng_state().is_cpu
    assert torch.Generator(device="cuda").device == GPU and torch.Generator().device == torch.device("cpu")
    for draw, generator in ((None, torch.cuda.default_generators[0]), (torch.Generator("cuda"),) * 2):
        generator.manual_seed(5)
        # CUDAGeneratorImpl::get_state: seed and offset
        start = generator.get_state()
        assert start.is_cpu and start.view(torch.int64).tolist() == [5, 0] and generator.initial_seed() == 5
        first = torch.randn(4, device="cuda", generator=draw)
        later = generator.get_state()
        assert later.view(torch.int64)[0] == 5 and later.view(torch.int64)[1] > 0
        second = torch.randn(4, device="cuda", generator=draw)
        for state, expected in ((start, first), (later, second), (start, first)):
            generator.set_state(state)
            assert torch.equal(generator.get_state(), state)
            assert torch.equal(torch.randn(4, device="cuda", generator=draw), expected)
        advanced = later.clone()
        advanced.view(torch.int64)[1] += 4096
        generator.set_state(advanced)
        assert torch.equal(generator.get_state(), advanced)
        with pytest.raises(RuntimeError, match="wrong size"):
            generator.set_state(torch.zeros(8, dtype=torch.uint8))
    with torch.random.fork_rng(devices=[0]):
        torch.cuda.manual_seed(3)
        first = torch.randn(4, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.randn(4, device="cuda"), first)


def test_types_of_tensors_on_the_gpu():
    assert on_gpu.type() == "torch.cuda.FloatTensor" and on_host.type() == "torch.FloatTensor"
    half = on_host.type(torch.cuda.HalfTensor)
    assert half.is_cuda and half.dtype == torch.float16 and half.type("torch.FloatTensor").is_cpu
    assert isinstance(on_gpu, torch.cuda.FloatTensor) and not isinstance(on_host, torch.cuda.FloatTensor)
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2] and torch.cuda.FloatTensor(2, 3).shape == (2, 3)
    assert not isinstance(half, torch.cuda.FloatTensor) and torch.cuda.IntTensor(2).is_cuda


def test_gradients_in_half_precision_are_added_in_single_precision():
    # the sum of 3000 ones is a number of half precision, which does not have the sum of 2048 and 1
    layer = torch.nn.LayerNorm(8, device="cuda", dtype=torch.float16)
    layer(torch.randn(3000, 8, device="cuda", dtype=torch.float16)).sum().backward()
    assert layer.bias.grad.dtype == torch.float16 and (layer.bias.grad == 3000).all()
    table = torch.nn.Embedding(2, 4, device="cuda", dtype=torch.float16)
    table(torch.zeros(3000, dtype=torch.int64, device="cuda")).sum().backward()
    assert table.weight.grad.tolist() == [[3000.0] * 4, [0.0] * 4] and table.weight.grad.is_cuda
    # 2^-14 (2^14)^2 / 2^14 is 1, but the second factor of 2^14 is too much for half precision
    factors = torch.tensor([2.0**10, 2.0**10, 2.0**-15], device="cuda").half()
    assert factors.prod() == 32 and factors.prod().dtype == torch.float16
    mean = torch.ops.aten.native_layer_norm(torch.ones(2, 8, device="cuda").half(), [8], None, None, 1e-5)[1]
    assert mean.dtype == torch.float32  # as on a GPU


def test_products_with_a_type_of_their_result():
    # 65504 is the largest number of half precision
    a = torch.full((2, 4), 256.0, device="cuda").half()
    assert torch.mm(a, a.T, out_dtype=torch.float32).tolist() == [[4 * 65536.0] * 2] * 2
    total = torch.ones(2, 2, device="cuda")
    torch.addmm(total, a, a.T, out_dtype=torch.float32, out=total)
    assert total.tolist() == [[4 * 65536.0 + 1] * 2] * 2 and total.is_cuda
    assert torch.bmm(a[None], a.T[None], out_dtype=torch.float32).dtype == torch.float32


def test_products_in_half_precision_add_like_tensor_cores():
    # each instruction adds 16 terms and rounds once: 2^24 + 15 is rounded to even, 2^24 + 16, and 2^24 ends the sum
    ones = torch.ones(512, device="cuda").half()
    row, column = ones.clone(), ones.clone()
    row[0], row[-1] = 2.0**12, -(2.0**12)
    column[0] = column[-1] = 2.0**12
    a, b, c = row[None], column[:, None], torch.ones(1, 1, device="cuda").half()
    out = torch.empty(0, device="cuda").half()
    expected = 16 + 30 * 16 + 15
    assert (a @ b).item() == expected and (a @ b).is_cuda and (a @ b).dtype == torch.float16
    assert torch.mm(a, b, out=out) is out and out.item() == expected and out.shape == (1, 1)
    assert torch.addmm(c, a, b, beta=2, alpha=0.5).item() == 0.5 * expected + 2
    assert c.clone().addmm_(a, b).item() == expected + 1
    assert torch.dot(row, column).item() == torch.mv(a, column).item() == expected
    assert torch.bmm(a[None], b[None]).item() == torch.einsum("ik,kj->", a, b).item() == expected
    assert torch.nn.functional.linear(a, column[None], c[0]).item() == expected + 1
    assert torch.addmm(c * torch.nan, a, b, beta=0).item() == expected
    for wrong in (lambda: a @ b.float(), lambda: a @ a, lambda: torch.addmm(c[0, 0].expand(2, 2), a, b)):
        with pytest.raises(RuntimeError, match="dtype|shapes|size"):
            wrong()
    leaf = a.clone().requires_grad_()
    (leaf @ b).backward()
    assert leaf.grad.dtype == torch.float16 and (leaf.grad == column).all()


def test_products_in_bfloat16_of_any_shape():
    # integers below 256, whose sums are exact; a CPU that computes them as numbers of single precision
    generator = torch.Generator().manual_seed(1)
    for batch, m, n, k in ((1, 300, 700, 40), (3, 400, 400, 33), (5000, 4, 8, 16), (2, 1, 1, 1), (2, 3, 4, 0), (0, 2, 2, 2)):
        a = torch.randint(-8, 8, (batch, m, k), generator=generator).to(torch.bfloat16)
        b = torch.randint(-8, 8, (batch, k, n), generator=generator).to(torch.bfloat16)
        expected = (a.float() @ b.float()).to(torch.bfloat16)
        got = torch.bmm(a.cuda(), b.cuda())
        assert got.is_cuda and torch.equal(got.cpu(), expected)
        assert torch.equal((a.cuda() @ b.mT.contiguous().cuda().mT).cpu(), expected)


def test_numbers_of_integers_in_bins():
    numbers = torch.tensor([0, 1, 1, 3, 3, 3, 9], device="cuda", dtype=torch.int32)
    counts = torch.histc(numbers, bins=4, min=0, max=3)  # the last bin includes its end; 9 is in none
    assert counts.tolist() == [1, 2, 0, 3] and counts.dtype == torch.int32 and counts.is_cuda


def test_numbers_of_devices():
    assert torch.device(0) == GPU and torch.zeros(2, device=torch.device(0)).is_cuda


def test_streams_and_events_of_any_device():
    stream, event = torch.Stream(device="cuda"), torch.Event(device="cuda", enable_timing=True)
    assert isinstance(stream, torch.Stream) and isinstance(torch.cuda.Stream(), torch.Stream)
    assert isinstance(event, torch.Event) and isinstance(event, torch.cuda.Event)
    event.record()
    assert event.query() and event.elapsed_time(stream.record_event()) > 0
    assert isinstance(torch.Stream(device="cpu"), torch.Stream) and torch.Stream(device="cpu").device.type == "cpu"


def test_pools_of_memory():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        assert torch.ones(2, device="cuda").is_cuda
    assert pool.id != torch.cuda.MemPool().id and pool.snapshot() == []


def test_attention_by_kernels_that_a_cpu_lacks():
    q = torch.ones(1, 1, 4, 8, device="cuda")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        assert (torch.nn.functional.scaled_dot_product_attention(q, q, q) == 1).all()
        assert not torch.backends.cuda.math_sdp_enabled()


def test_profiles_of_the_gpu(capfd):
    activities = torch.profiler.ProfilerActivity
    assert activities.CUDA in torch.profiler.supported_activities()
    with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profile:
        on_gpu + 1
    assert any(event.key == "aten::add" for event in profile.key_averages())
    assert "CUDA event" not in capfd.readouterr().err


def test_time_of_what_torch_computes():
    # programs divide by it
    triton_testing = pytest.importorskip("triton.testing")
    assert triton_testing.do_bench(lambda: on_gpu + 1) > 0


def test_properties():
    properties = torch.cuda.get_device_properties(0)
    assert properties.L2_cache_size == 50 << 20  # NVIDIA H100 Tensor Core GPU Architecture, table 3
    assert torch.version.cuda and torch.cuda.get_device_properties(0).uuid
    assert (properties.shared_memory_per_block, properties.shared_memory_per_block_optin) == (48 << 10, 227 << 10)
"""


def test_tensors_are_where_they_would_be_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "test_places.py").write_text(TESTS)
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-W",
        "error",
        "-o",
        "gpuperf_targets=h100-sxm",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--gpuperf-triton", *options],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
