"""Barriers and memory order (manual: bar, barrier, bar.warp.sync, barrier.cluster, membar, fence)."""

from __future__ import annotations

from .. import effects
from ..model import Accepts
from ..table import Options, declare

BARRIER: Options = {"category": "barrier", "unit": "adu", "effect": effects.BARRIER}
CONSTANTS = {
    "a": (lambda number: 0 <= number <= 15, "the barriers 0 to 15"),
    "b": (lambda number: number >= 0 and number % 32 == 0, "a multiple of the 32 threads of a warp"),
}
ALIGNED: Options = {
    **BARRIER,
    "accepts": Accepts(constants=CONSTANTS),
    "requires": {"cta": ((7, 8), 0)},
    "leads": "cta",
}
UNALIGNED: Options = {**ALIGNED, "since": (6, 0), "target": 30}
CLUSTER: Options = {**BARRIER, "effect": effects.CLUSTER_BARRIER, "since": (7, 8), "target": 90}
FENCE: Options = {"category": "barrier", "unit": "lsu", "effect": effects.FENCE, "leads": "proxy"}

for _name, _aligned, _options in (("bar", "", ALIGNED), ("barrier", "{.aligned}", UNALIGNED)):
    declare(
        f"{_name}{{.cta}}.sync{_aligned} a:u32{{, b:u32}}",
        "Waits until all threads, or b of them, arrived at barrier a.",
        **_options,
    )
    declare(
        f"{_name}{{.cta}}.arrive{_aligned} a:u32, b:u32",
        "Announces arrival at barrier a, for which b threads count.",
        **{**_options, "leads": "arrive"},
    )
    declare(
        f"{_name}{{.cta}}.red.op{_aligned}.u32 d, a:u32{{, b:u32}}, {{!}}c:pred",
        "Waits as .sync; the number of threads with c.",
        op="popc",
        **{**_options, "leads": "red"},
    )
    declare(
        f"{_name}{{.cta}}.red.op{_aligned}.pred p:pred, a:u32{{, b:u32}}, {{!}}c:pred",
        "Waits as .sync; whether c holds in all threads (and) or any (or).",
        op="and or",
        **{**_options, "leads": "red"},
    )
declare(
    "bar.warp.sync membermask:u32",
    "Waits until all lanes of the mask arrived.",
    category="barrier",
    unit="adu",
    effect=effects.WARP_BARRIER,
    since=(6, 0),
    target=30,
)
declare(
    "barrier.cluster.arrive{.sem}{.aligned}",
    "Announces arrival at the cluster's barrier.",
    sem="release relaxed",
    **{**CLUSTER, "requires": {"release": ((8, 0), 90), "relaxed": ((8, 0), 90)}},
)
declare(
    "barrier.cluster.wait{.sem}{.aligned}",
    "Waits until all threads of the cluster arrived.",
    sem="acquire",
    **{**CLUSTER, "requires": {"acquire": ((8, 0), 90)}},
)

declare(
    "membar.level",
    "Orders this thread's memory accesses before and after it.",
    level="cta gl sys",
    **{**FENCE, "since": (1, 4)},
)
declare(
    "membar.proxy.proxykind", "As fence.proxy.", proxykind="alias", **{**FENCE, "since": (7, 5), "target": 70}
)
declare(
    "fence{.sem}.scope",
    "Orders memory accesses among the threads of the scope.",
    sem="sc acq_rel acquire release",
    scope="cta cluster gpu sys",
    **{
        **FENCE,
        "since": (6, 0),
        "target": 70,
        "requires": {"cluster": ((7, 8), 90), "acquire": ((8, 6), 90), "release": ((8, 6), 90)},
    },
)
declare(
    "fence.op_restrict.release.cluster",
    "Orders mbarrier.init.",
    op_restrict="mbarrier_init",
    **{**FENCE, "since": (8, 0), "target": 90},
)
declare(
    "fence.acquire.sync_restrict::shared::cluster.cluster",
    "Orders accesses to the cluster's shared memory.",
    **{**FENCE, "since": (8, 6), "target": 90},
)
declare(
    "fence.release.sync_restrict::shared::cta.cluster",
    "Orders accesses to the CTA's shared memory.",
    **{**FENCE, "since": (8, 6), "target": 90},
)
declare(
    "fence.proxy.alias",
    "Orders accesses through aliased addresses.",
    **{**FENCE, "since": (7, 5), "target": 70},
)
declare(
    "fence.proxy.async{.space}",
    "Orders accesses of the generic and the asynchronous proxy.",
    space="global shared::cta shared::cluster",
    **{**FENCE, "since": (8, 0), "target": 90},
)
declare(
    "fence.proxy.tensormap::generic.release.scope",
    "Orders writes of tensor maps.",
    scope="cta cluster gpu sys",
    **{**FENCE, "since": (8, 3), "target": 90},
)
declare(
    "fence.proxy.tensormap::generic.acquire.scope [addr], size:imm",
    "Orders reads of tensor maps.",
    accepts=Accepts(constants={"size": (lambda size: size == 128, "128, the bytes of a tensor map")}),
    scope="cta cluster gpu sys",
    **{**FENCE, "since": (8, 3), "target": 90},
)
for _kind, _since in (
    ("acquire.sync_restrict::shared::cluster", (8, 6)),
    ("release.sync_restrict::shared::cta", (8, 6)),
    ("release.sync_restrict::shared::cluster::read", (9, 4)),
):
    declare(
        f"fence.proxy.async::generic.{_kind}.cluster",
        "Orders accesses of the generic and the asynchronous proxy.",
        **{**FENCE, "since": _since, "target": 90},
    )
declare(
    "fence.proxy.alias.sem.sys",
    "Orders accesses through aliased addresses among all threads.",
    sem="acquire release",
    **{**FENCE, "since": (9, 4), "target": 90},
)
declare(
    "fence.proxy.proxies.alias.sem.sys",
    "Orders accesses of the generic and the fabric proxy.",
    proxies="generic::fabric fabric::generic fabric::fabric",
    sem="acquire release",
    **{**FENCE, "since": (9, 3), "target": 100},
)
