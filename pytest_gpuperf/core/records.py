"""What a run says of its kernels: the records that ride on test reports and that a report holds.

They are dictionaries, not objects, because they *are* the document: they travel between processes and come back from files as they
are. The published schema of reports is generated from them (``store.schema``): ``Annotated`` adds what JSON Schema knows beyond a
type. Keys of a class with ``total=False`` may be absent.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from .verdict import CASE_VERDICTS, SESSION_VERDICTS

__all__ = [
    "Access",
    "AdviceRow",
    "Case",
    "Cause",
    "Detail",
    "Document",
    "ExplainedBranch",
    "ExplainedLine",
    "ExplainedLoop",
    "Explanation",
    "FindingRow",
    "Flow",
    "FlowEdgeRow",
    "ListingRow",
    "Policy",
    "Row",
    "ShownTarget",
    "SiteRow",
    "StallRow",
    "VertexRow",
]

Count = Annotated[int, {"minimum": 0}]
Number = Annotated[float, {"minimum": 0}]
Shape = Annotated[list[Count], {"minItems": 3, "maxItems": 3}]


def _one_of(*words: str) -> dict[str, list[str]]:
    return {"enum": [*words]}


Better = Annotated[str, _one_of("lower", "higher", "neutral")]
Class = Annotated[str, _one_of("exact", "ratio", "modelled", "set")]
Verdict = Annotated[str, _one_of(*CASE_VERDICTS)]
CaseVerdict = Annotated[str, _one_of(*(verdict for verdict in CASE_VERDICTS if verdict != "unjudged"))]
SessionVerdict = Annotated[str, _one_of(*SESSION_VERDICTS)]
Revisions = Annotated[dict[str, int], {"revisions": True}]
"""Revisions of the meaning of numbers, by the groups of ``core.metrics.ANALYSIS``."""


class Counts(TypedDict, total=False):
    """Counts of instructions, those that code names."""

    thread_instructions: int
    by_category: dict[str, int]
    opcodes: dict[str, int]


class MachineEntry(TypedDict, total=False):
    """What a baseline stores of the machine code for a target; its metrics follow from their table."""

    architecture: str
    assembler: str
    code: str
    residue: float


class _PredictedByMore(TypedDict, total=False):
    assembler: str


class PredictedBy(_PredictedByMore):
    """What predicted a time, where that was not Kleimenov-Popova: the model, its revision, and the assembler if that made the machine
    code."""

    name: str
    revision: int


class TargetEntry(TypedDict, total=False):
    """What a baseline stores of the predicted time, and the machine code, on a target; ``stalls``: of a simulated time the lines that
    warps wait for (``judge.stalled``)."""

    machine: int
    model: PredictedBy
    time_us: float
    limiter: str
    stalls: list[str]
    occupancy: float
    machine_code: MachineEntry
    plugins: dict[str, dict[str, float]]


class Entry(TypedDict, total=False):
    """What a baseline stores of a case: the sections that code names. What each of them holds follows from the table of metrics
    (``store.baseline.CASE``), and so does the schema."""

    analysis: Revisions
    kernel: str
    inputs: str
    compiler: str
    values: str
    paced: str
    counts: Counts
    branches: dict[str, float]
    resources: dict[str, str | int]
    plugins: dict[str, dict[str, float]]
    findings: list[str]
    lines: list[str]
    targets: dict[str, TargetEntry]


class _RowMore(TypedDict, total=False):
    limit: float
    where: Annotated[
        str,
        {
            "description": "The lines of PTX and source that made it move; absent where it has none, or the reference "
            "holds no counts of lines."
        },
    ]
    source: Annotated[
        str,
        {
            "enum": ["estimated", "ptxas"],
            "description": "The source of the registers that the metric is, or depends on.",
        },
    ]


# a class body cannot say "class"
_RowClass = TypedDict("_RowClass", {"class": Class})


class Row(_RowClass, _RowMore):
    """One metric of a case: what it was, what it is, how far it may move, and what that means."""

    metric: str
    target: Annotated[str, {"description": "Machine id, empty for metrics that hold for all."}]
    better: Better
    unit: str
    old: float | None
    new: float | None
    allowed: str
    verdict: Verdict
    fails: bool
    note: str


StalledCode = Annotated[
    list[Any],
    {
        "prefixItems": [
            {"type": "number", "minimum": 0},
            {"type": "string"},
            {"type": "number", "minimum": 0},
        ],
        "minItems": 3,
        "maxItems": 3,
    },
]


class _ShownMachineCodeMore(TypedDict, total=False):
    stalled: Annotated[
        list[StalledCode],
        {
            "description": "Of a simulated launch, for each of the instructions: the part of all clocks of warps that "
            "they wait before it, for what most of them, and the part that it causes."
        },
    ]
    instructions: Annotated[
        list[
            Annotated[
                list[Any],
                {
                    "prefixItems": [
                        {"type": "integer", "minimum": 0},
                        {"type": "string"},
                        *({"type": "integer", "minimum": 0} for _ in range(3)),
                        {"type": "boolean"},
                        {"type": "integer", "minimum": 0},
                        {"type": "string"},
                    ],
                    "minItems": 8,
                    "maxItems": 8,
                },
            ]
        ],
        {
            "description": "Of one target: address, machine code, PTX line (0: the assembler's own), executions by warps and by "
            "threads, whether these are exact, stall cycles, scoreboards waited for."
        },
    ]


class ShownMachineCode(_ShownMachineCodeMore):
    """What a report says of the machine code for a target, beside what is stored."""

    disassembler: str
    by_opcode: dict[str, Count]
    by_pipe: dict[str, Count]
    notes: list[str]


class StallRow(TypedDict):
    """Where warps wait and for what, on one target: cycles and number of the waits of all warps, and their part of all stalls."""

    cause: str
    at: str
    on: str
    cycles: Number
    times: Number
    share: Number


class AdviceRow(TypedDict):
    """A change and the µs that it is predicted to save; ``line`` is empty where it concerns the whole kernel."""

    what: str
    line: str
    gain_us: Number


class _StalledLineMore(TypedDict, total=False):
    where: Annotated[str, {"description": "File and text of the line, as baselines have it."}]


class StalledLineRow(_StalledLineMore):
    """A line that warps of a simulated launch wait for: ``us`` of the predicted time, by cause."""

    at: str
    cause: str
    us: Number


class _ShownTargetMore(TypedDict, total=False):
    stalls: Annotated[list[StallRow], {"description": "Where warps wait, the longest wait first."}]
    advice: Annotated[
        list[AdviceRow], {"description": "Changes that are predicted to shorten it, the largest gain first."}
    ]
    stalled_lines: Annotated[
        list[StalledLineRow],
        {"description": "For a simulated launch the lines that warps wait for, the longest wait first."},
    ]
    l2_read_sectors: Annotated[
        Count, {"description": "32-byte sectors that a simulated launch reads from L2, modelled."}
    ]
    machine_code: ShownMachineCode
    no_machine_code: Annotated[str, {"description": "Why there is none, if it was requested."}]


class ShownTarget(_ShownTargetMore):
    """What a report says of the predicted time on a target, beside what is stored."""

    model: str
    launch_us: Number
    bounds: dict[str, Number]
    ctas_per_sm: Count
    occupancy_limiter: str
    waves: Number
    notes: list[str]


class _FindingMore(TypedDict, total=False):
    waste: Annotated[Count, {"description": "Bytes of needless traffic, in all calls."}]
    calls: Count
    advice: str
    accepted: Annotated[str, {"description": "The reason why it is accepted: then it does not fail."}]
    implied_by: Annotated[
        str, {"description": "The stronger finding from which it follows: then it does not fail."}
    ]
    saving_us: Annotated[
        dict[str, Number],
        {"description": "Target → predicted time that the launches save without that traffic."},
    ]


class FindingRow(_FindingMore):
    """One finding; earlier versions say less of it."""

    identity: str
    rule: str
    object: str
    severity: str
    message: str
    path: str
    line: Count
    evidence: dict[str, object]


class _AccessMore(TypedDict, total=False):
    kind: str
    shared_serializations: Count
    global_wavefronts: Count
    local_bytes: Count


class Access(_AccessMore):
    """One memory instruction; earlier versions say less of it."""

    line: Count
    source: str
    opcode: str
    requests: Count
    global_requests: Count
    global_bytes: Count
    sectors: Count
    cache_lines: Count
    shared_requests: Count
    wavefronts: Count
    conflicts: Count
    local_requests: Count
    local_sectors: Count
    serializations: Count


class Cause(TypedDict):
    """One thing that a condition depends on."""

    kind: str
    name: str
    varies: bool


class ExplainedLoop(TypedDict):
    """One loop that ran."""

    function: str
    line: Count
    last_line: Count
    source: str
    depth: Count
    entries: Annotated[int | None, {"minimum": 0}]
    iterations: Annotated[int | None, {"minimum": 0}]
    head_thread_executions: Count
    head_warp_executions: Count
    thread_instructions: Count
    causes: list[Cause]
    mean: Annotated[float | None, {"minimum": 0}]
    lanes: Number
    least: Annotated[int | None, {"minimum": 0}]
    most: Annotated[int | None, {"minimum": 0}]


class ExplainedBranch(TypedDict):
    """One branch that diverged."""

    function: str
    line: Count
    source: str
    opcode: str
    executed: Count
    divergent: Count
    causes: list[Cause]


class ExplainedLine(TypedDict):
    """One hot line."""

    path: str
    line: Count
    thread_instructions: Count
    divergent: Count


class Explanation(TypedDict):
    """Why the numbers are as they are."""

    loops: list[ExplainedLoop]
    branches: list[ExplainedBranch]
    lines: list[ExplainedLine]


class SiteRow(TypedDict):
    """A line of the host program."""

    text: str
    path: str
    line: Count
    function: str


class VertexRow(TypedDict):
    """One operation at one call path."""

    number: Count
    kind: str
    label: str
    calls: Count
    path: list[SiteRow]
    findings: list[str]


class FlowEdgeRow(TypedDict):
    """Values of one object, from what wrote it last to what reads or overwrites it."""

    source: Count
    target: Count
    object: Count
    name: str
    kind: str
    bytes: Count
    unchanged: Count
    size: Count


class Flow(TypedDict):
    """The value flow graph of a test."""

    vertices: list[VertexRow]
    edges: list[FlowEdgeRow]


class _DetailMore(TypedDict, total=False):
    flow: Annotated[
        Flow,
        {
            "description": "The value flow of the test's program, in the first case of the test. "
            "Only in a report that was written to a folder."
        },
    ]
    cluster: Shape
    accesses: Annotated[
        list[Access],
        {
            "description": "Per memory instruction that was executed: requests by space, bytes asked of global memory, "
            "sectors and lines of these, wavefronts and conflicts of shared memory, sectors of local memory, and the most "
            "lanes of atomics on one address, summed over requests."
        },
    ]
    explanation: Annotated[
        Explanation,
        {
            "description": "Explanation: loops, divergent branches and hot lines, most first. Only in a report that was written "
            "to a folder, and where branch metrics moved."
        },
    ]
    opcodes: Annotated[
        dict[
            str,
            Annotated[
                list[Any],
                {
                    "prefixItems": [
                        {"type": "string"},
                        {"type": "string"},
                        {"type": "integer", "minimum": 0},
                    ],
                    "minItems": 1,
                    "maxItems": 3,
                },
            ],
        ],
        {"description": "Opcode → category, and precision and number of its floating-point operations."},
    ]
    inlined: Annotated[
        dict[str, list[str]],
        {
            "description": "PTX line → function that was inlined there (empty if unknown) and positions of the calls, "
            "innermost first."
        },
    ]
    files: Annotated[list[str], {"description": "Files of the source that lie below the rootdir."}]


class Detail(_DetailMore):
    """What a report says of a case beside what is stored."""

    grid: Shape
    block: Shape
    demand: str
    ptx_target: str
    ptx_version: str
    targets: dict[str, ShownTarget]
    findings: list[FindingRow]
    lines: Annotated[
        list[Annotated[list[Count], {"minItems": 6, "maxItems": 6}]],
        {
            "description": "Per PTX line: line, thread instructions, warp instructions, sectors, shared conflicts, "
            "divergent branches."
        },
    ]
    notes: list[str]
    sources: Annotated[dict[str, str], {"description": "PTX line → position in the source program."}]
    listing: str


class KernelRow(TypedDict):
    """Which kernel."""

    name: str
    path: str
    target: str


class PlaceRow(TypedDict):
    """A line of a file."""

    path: str
    line: Count


class _PolicyMore(TypedDict, total=False):
    judge: Annotated[str, _one_of("auto", "machine", "ptx")]
    time_model: Annotated[str, _one_of("auto", "simulation", "simulation-expanded", "kleimenov-popova")]
    programs: Annotated[
        list[str],
        {
            "description": "Options of the command line, in addition to --gpuperf, without which the test finds no GPU."
        },
    ]


class Policy(_PolicyMore):
    """What it takes to judge a case anew; earlier versions say less of it."""

    limits: dict[str, float]
    tolerances: list[list[Annotated[list[str], {"minItems": 2, "maxItems": 2}]]]
    targets: list[str]
    failures: dict[str, list[str]]
    unexplained: bool
    on_improvement: str
    on_unmodelled: str


class _JudgementMore(TypedDict, total=False):
    look_at: Annotated[
        list[PlaceRow],
        {"description": "Lines of the project's source that made the numbers move, best first."},
    ]


class Judgement(_JudgementMore):
    """The part of a case that depends on what it is compared with."""

    verdict: CaseVerdict
    fails: bool
    error: str
    line: Annotated[Count, {"description": "PTX line to look at, 0 if nothing ran."}]
    position: str
    inputs_changed: bool
    kernel_changed: bool
    rows: list[Row]
    because: list[str]
    stored: Entry | None


class _CaseMore(TypedDict, total=False):
    analysis: Revisions


class Case(Judgement, _CaseMore):
    """One kernel of one test, judged."""

    id: str
    nodeid: str
    module: str
    baseline: str
    kernel: KernelRow
    call: PlaceRow
    measured: Entry
    detail: Detail
    skipped_targets: list[str]
    unused_targets: list[str]
    policy: Policy


class Judged(Case, total=False):
    """A case on its way from where the test ran: ``remarks`` are about how it was analysed, ``listing`` comes once per process."""

    remarks: list[str]
    listing: ListingRow


class NotJudged(TypedDict):
    """A test that declares kernels but was not judged."""

    nodeid: str
    outcome: Annotated[str, _one_of("running", "passed", "failed", "skipped", "xfailed")]
    reason: str


class StalenessNotJudged(TypedDict):
    """A module whose unused entries could not be determined."""

    module: str
    reason: str


class BaselineRow(TypedDict):
    """What an update would do to a baseline."""

    module: str
    path: str
    base: Annotated[str, {"description": "SHA-256 of the file before the run, empty if there was none."}]
    changed: list[str]
    added: list[str]
    pruned: list[str]


class ListingRow(TypedDict):
    """The PTX of a kernel and the source it came from."""

    id: str
    path: str
    lines: list[
        Annotated[
            list[Any],
            {
                "prefixItems": [{"type": "integer", "minimum": 0}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ]
    ]
    source: Annotated[
        dict[str, str],
        {
            "description": "Text of the source lines that detail.sources names, where the files lie below the rootdir."
        },
    ]


class PluginMetric(TypedDict):
    """A metric of a plugin, as far as judging it anew needs it."""

    name: str
    kind: Annotated[str, _one_of("exact", "ratio", "modelled")]
    better: Better
    unit: str
    per_target: bool
    digits: Count
    tolerance: str
    lines: list[str]


class PluginRow(TypedDict):
    """A plugin and its metrics."""

    name: str
    metrics: list[PluginMetric]


class _DocumentMore(TypedDict, total=False):
    notes: Annotated[
        list[str],
        {
            "description": "What of the baselines is not used, and how kernels were analysed, e.g. on the slow backend and "
            "why: that may differ between hosts, unlike the rest."
        },
    ]
    plugins: Annotated[
        list[PluginRow], {"description": "The plugins with metrics or patterns; absent without any."}
    ]


class Document(_DocumentMore):
    """gpuperf.json: same results, same bytes; no clock, host or absolute path."""

    schema_version: Annotated[int, {"const": 1}]
    verdict: SessionVerdict
    passed: bool
    counts: Annotated[
        dict[CaseVerdict, Count],
        {"description": "Cases by verdict."},
    ]
    cases: list[Case]
    not_judged: list[NotJudged]
    stale: list[str]
    staleness_not_judged: list[StalenessNotJudged]
    problems: list[str]
    baselines: list[BaselineRow]
    listings: Annotated[list[ListingRow], {"description": "PTX text by line, named by detail.listing."}]
