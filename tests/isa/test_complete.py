"""The table against the manual's list of instructions, and the rows that cannot be run against what the project leaves out."""

from __future__ import annotations

from gpuperf_engine.isa.table import Row, lookup, rows

#: The instructions of the PTX ISA manual 9.4, chapter "Instructions", section by section.
MANUAL = """
integer: add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a
integer, newer: clmad
extended precision: add.cc addc sub.cc subc mad.cc madc
floating point: testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh
comparison: set setp selp slct
logic: and or xor not cnot lop3 shf shl shr
movement: mov shfl shfl.sync prmt ld ld.global.nc ldu st st.async st.bulk multimem.ld_reduce multimem.st multimem.red
movement: multimem.st.async applypriority.async.bulk spcompress spdecompress
movement: prefetch prefetchu applypriority discard createpolicy isspacep cvta cvt cvt.pack mapa getctarank
asynchronous copies: cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all cp.async.bulk cp.reduce.async.bulk
asynchronous copies: multimem.cp.async.bulk multimem.cp.reduce.async.bulk
asynchronous copies: cp.async.bulk.prefetch cp.async.bulk.tensor cp.reduce.async.bulk.tensor cp.async.bulk.prefetch.tensor
asynchronous copies: cp.async.bulk.commit_group cp.async.bulk.wait_group cp.async.mbarrier.arrive
tensor maps: tensormap.replace tensormap.cp_fenceproxy
textures: tex tld4 txq istypep
surfaces: suld sust sured suq
control: bra brx.idx call ret exit
synchronisation: bar barrier bar.warp.sync barrier.cluster membar fence atom red red.async multimem.red.async vote vote.sync match
synchronisation: activemask
synchronisation: redux griddepcontrol elect
mbarrier: mbarrier.init mbarrier.inval mbarrier.expect_tx mbarrier.complete_tx mbarrier.arrive mbarrier.arrive_drop
mbarrier: mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count mbarrier.check_layout
clusters: clusterlaunchcontrol.try_cancel clusterlaunchcontrol.query_cancel
matrices: wmma.load wmma.store wmma.mma mma mma.sp ldmatrix stmatrix movmatrix
matrices: wgmma.mma_async wgmma.mma_async.sp wgmma.fence wgmma.commit_group wgmma.wait_group
tensor memory: tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.ld.red tcgen05.st tcgen05.wait
tensor memory: tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp tcgen05.commit tcgen05.fence
stack: stacksave stackrestore alloca
video: vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2
video: vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4
other devices: fabric.try_get fabric.try_put fabric.try_red fabric.try_pullred fabric.submit fabric.wait
miscellaneous: brkpt nanosleep pmevent trap setmaxnreg
"""
INSTRUCTIONS = {name for line in MANUAL.strip().splitlines() for name in line.partition(":")[2].split()}


def words(row: Row) -> list[set[str]]:
    """What may stand at each place of the row's opcode, optional places included."""
    found = [{row.name}]
    for item in row.pattern:
        for part in item.group or (item,):
            found.append(
                {word.split("::")[0] for word in (part.values or (part.name,))}
                | set(part.values or (part.name,))
            )
    return found


def names(row: Row) -> set[str]:
    """The instructions of the manual that the row belongs to: whose words come in its opcode in that order."""
    places = words(row)
    found = set()
    for name in INSTRUCTIONS:
        rest = iter(places)
        if name.split(".")[0] == row.name and all(
            any(word in place for place in rest) for word in name.split(".")
        ):
            found.add(name)
    return found


def test_every_row_is_an_instruction_of_the_manual() -> None:
    assert [row.syntax for row in rows() if not names(row)] == []


def test_every_instruction_of_the_manual_has_a_row() -> None:
    assert len(INSTRUCTIONS) > 190
    assert INSTRUCTIONS - set().union(*map(names, rows())) == set()


def is_left_out(row: Row) -> bool:
    """What has no semantics on purpose: tensor memory as of PTX 9.4, and copies to and from other devices."""
    if row.name == "tcgen05":
        return row.available.since >= (9, 4)
    return row.name == "fabric" and not row.syntax.startswith(("fabric.submit", "fabric.wait"))


def test_rows_without_semantics() -> None:
    without = {row.syntax for row in rows() if not row.runs}
    assert without == {row.syntax for row in rows() if is_left_out(row)}


def test_old_forms_are_there() -> None:
    """What later versions and targets dropped or renamed."""
    for opcode in (
        "shfl.idx.b32", "vote.ballot.b32", "vote.all.pred", "bar.sync", "bar.red.popc.u32", "membar.gl", "prefetchu.L1",
        "mad24.lo.s32", "sin.approx.f32", "sqrt.approx.f32", "div.full.f32", "cvta.to.shared.u32", "fns.b32",
        "red.add.f32", "atom.inc.u32", "ldu.global.u32", "set.lt.u32.u32", "slct.f32.s32", "cnot.b32",
    ):  # fmt: skip
        assert lookup(opcode), opcode
