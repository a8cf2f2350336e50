"""Runtime functions for the memory accesses of a whole warp, as LLVM IR. PYTEST_DONT_REWRITE

Each takes the lanes' addresses as one vector and tries what is cheap first: consecutive lanes as one (masked) vector access,
half warps that are consecutive or all the same, a gather or scatter on hosts with AVX-512, and at last the loops of
``memory``. Every access is checked whichever way it goes. A refused one sets ``Context.FAULTED``, which the generated
code tests at the end of the block; it gives zeros meanwhile. Sectors and wavefronts are counted where ``Context.COUNTING`` says so.

Names are ``<space>_<load|store>_<form>``; ``watched`` is shared memory in which pieces of words are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.abi import SHAPE_BYTES, SITE_BYTES, Context, Counter, Cta, Race
from ..ir.emitter import LANES
from .access_local import local_access
from .access_races import race_declarations, races_function
from .access_shared import shared_access
from .access_text import V32, V64, Form, Text, declarations, finish, given, head, ones_of, slow

__all__ = ["access_functions", "access_names", "is_access"]

_SPACES = ("global", "shared", "watched", "local")


def is_access(name: str) -> bool:
    """Whether this module writes the function of that name."""
    return name.startswith(tuple(f"{space}_" for space in _SPACES))


def access_names(group: str) -> tuple[str, ...]:
    """The functions of a group such as ``global_4x2``."""
    space, form = group.split("_")
    return tuple(f"{space}_{what}_{form}" for what in ("load", "store"))


def access_functions(group: str, wide: bool) -> str:
    """Load and store of one space and form. ``wide``: the host has AVX-512."""
    space, name = group.split("_")
    form = Form(*(int(part) for part in name.split("x")))
    make = {"global": _global, "shared": shared_access, "watched": shared_access, "local": local_access}[
        space
    ]
    texts = [make(f"{space}_{what}_{name}", form, wide, what == "store") for what in ("load", "store")]
    head = declarations(form)
    if space in ("shared", "watched"):
        texts += [races_function(form, wide, stores) for stores in (False, True)]
        head = "\n".join(dict.fromkeys((head + race_declarations(form)).splitlines())) + "\n"
    return head + "\n".join(texts)


def _global(name: str, form: Form, wide: bool, stores: bool) -> str:
    """Arena and generic addresses. ``%how``: space, + 4 where sectors are not counted."""
    to = Text()
    shift, size = form.shift, form.size
    value = head(to, name, form, stores, V64, ", i64 %how")
    flags = to.op(f"load i8, ptr {to.place(to.field('%ctx', Context.RACE_SITES, 'ptr'), '%site')}")
    strong = to.op(f"and i8 {flags}, {Race.IS_STRONG}")
    to.do(f"br i1 {to.op(f'icmp eq i8 {strong}, 0')}, label %weak, label %strong", "strong:")
    to.op(f"call i64 @race_flag({given((to.number('%ctx'), '%site', 4 if stores else 8))})")
    to.do("br label %weak", "weak:")
    cache = to.place(to.field("%ctx", Context.CACHE, "ptr"), to.op("shl i64 %site, 5"))
    low, span = to.field(cache, 0), to.field(cache, 8)
    zero = to.op(f"extractelement {V64} %a, i32 0")
    ladder = ", ".join(f"i64 {lane * size}" for lane in range(LANES))
    expected = to.op(f"add {V64} {to.splat(zero, 'i64')}, <{ladder}>")
    equal = to.bits(to.op(f"icmp eq {V64} %a, {expected}"))
    stray = to.op(f"and i32 %mask, {to.op(f'xor i32 {equal}, -1')}")
    first = to.op(f"zext i32 {to.op('call i32 @llvm.cttz.i32(i32 %mask, i1 false)')} to i64")
    behind = to.op(f"zext i32 {to.op('call i32 @llvm.ctlz.i32(i32 %mask, i1 false)')} to i64")
    last = to.op(f"sub i64 31, {behind}")
    offset = to.op(f"sub i64 {zero}, {low}")
    index = to.op(f"call i64 @llvm.fshr.i64(i64 {offset}, i64 {offset}, i64 {shift})")
    limit = to.op(f"lshr i64 {span}, {shift}")
    tests = [to.op(f"icmp ult i64 {to.op(f'add i64 {index}, {place}')}, {limit}") for place in (first, last)]
    tests += [to.op(f"icmp eq i32 {stray}, 0"), to.op("icmp ne i32 %mask, 0")]
    if not wide:
        tests.append(to.op("icmp eq i32 %mask, -1"))
    arena = to.field("%ctx", Context.ARENA)
    counting = to.field("%ctx", Context.COUNTING)
    quiet = to.op(f"or i1 {to.op(f'icmp eq i64 {counting}, 0')}, {to.op('icmp uge i64 %how, 4')}")
    space = to.op("and i64 %how, 3")
    to.do(f"br i1 {to.all(tests)}, label %fast, label %scattered", "fast:")
    _checked(to, form, stores, flags, "row", zero)
    host = to.op(f"inttoptr i64 {to.op(f'add i64 {arena}, {zero}')} to ptr")
    align = min(8, size)
    count = LANES * form.pieces
    vector, mask = f"v{count}{form.kind}", f"<{count} x i1>"
    on = to.repeat("%lanes", "i1", form.pieces) if wide else ""
    found = ""
    if stores and wide:
        to.do(
            f"call void @llvm.masked.store.{vector}.p0({form.raw} {value}, ptr align {align} {host}, {mask} {on})"
        )
    elif stores:
        to.do(f"store {form.raw} {value}, ptr {host}, align {align}")
    elif wide:
        zeros = f"{form.raw} zeroinitializer"
        found = to.op(
            f"call {form.raw} @llvm.masked.load.{vector}.p0(ptr align {align} {host}, {mask} {on}, {zeros})"
        )
    else:
        found = to.op(f"load {form.raw}, ptr {host}, align {align}")
    if not stores and not form.alone:
        to.split(found, form)
    tracked = to.op(f"icmp ne i64 {to.field(cache, 16)}, 0")
    to.do(f"br i1 {tracked}, label %shadow, label %whole", "shadow:")
    distance = to.op(f"sub i64 {to.field('%ctx', Context.SHADOW)}, {arena}")
    shadow = to.place(host, distance)
    if stores and wide:
        ones = f"splat ({form.kind} {ones_of(form)})"
        to.do(
            f"call void @llvm.masked.store.{vector}.p0({form.raw} {ones}, ptr align {align} {shadow}, {mask} {on})",
            "br label %whole",
        )
    elif stores:
        to.op(f"call i64 @mark_lanes({given((to.number('%ctx'), '%mask64', zero, size))})")
        to.do("br label %whole")
    elif wide:
        seen = to.op(
            f"call {form.raw} @llvm.masked.load.{vector}.p0(ptr align {align} {shadow}, {mask} {on}, {zeros})"
        )
        to.do(f"br i1 {_unseen(to, form, seen)}, label %unseen, label %whole", "unseen:")
    if not stores:
        to.op(f"call i64 @seen_lanes({given((to.number('%ctx'), '%site', '%mask64', zero, size))})")
        to.do("br label %whole")
    to.do("whole:")
    map_ = to.field("%ctx", Context.WRITES if stores else Context.READS)
    to.do(f"br i1 {to.op(f'icmp eq i64 {map_}, 0')}, label %mapped, label %map", "map:")
    noted = to.op(f"inttoptr i64 {to.op(f'add i64 {map_}, {zero}')} to ptr")
    ones = f"splat ({form.kind} {ones_of(form)})"
    if wide:
        to.do(
            f"call void @llvm.masked.store.{vector}.p0({form.raw} {ones}, ptr align {align} {noted}, {mask} {on})"
        )
    else:
        to.do(f"store {form.raw} {ones}, ptr {noted}, align {align}")
    to.do("br label %mapped", "mapped:")
    to.do(f"br i1 {quiet}, label %done, label %count", "count:")
    shifted = to.op(f"lshr i64 %mask64, {first}")
    holes = to.op(f"and i64 {shifted}, {to.op(f'add i64 {shifted}, 1')}")
    to.do(f"br i1 {to.op(f'icmp eq i64 {holes}, 0')}, label %ends, label %holes", "ends:")
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    reached = [to.op(f"add i64 {zero}, {to.op(f'shl i64 {place}, {shift}')}") for place in (first, last)]
    for counter, bits in ((Counter.SECTORS, 5), (Counter.LINES, 7)):
        pieces = [to.op(f"lshr i64 {place}, {bits}") for place in reached]
        to.bump(record, counter, to.op(f"add i64 {to.op(f'sub i64 {pieces[1]}, {pieces[0]}')}, 1"))
    if not stores:
        # words side by side: one pass for every 128 bytes' worth of lanes
        phases = [to.op(f"lshr i64 {place}, {7 - max(shift, 2)}") for place in (first, last)]
        to.bump(
            record,
            Counter.GLOBAL_WAVEFRONTS,
            to.op(f"add i64 {to.op(f'sub i64 {phases[1]}, {phases[0]}')}, 1"),
        )
    to.do("br label %done", "holes:")
    _count(to, form, stores, "holes", "row", "done")
    to.do("done:")
    finish(to, form, stores, found)
    to.do("scattered:")
    gathered = ""
    if wide:
        offsets = to.op(f"sub {V64} %a, {to.splat(low, 'i64')}")
        indices = to.op(
            f"call {V64} @llvm.fshr.v{LANES}i64({V64} {offsets}, {V64} {offsets}, {V64} splat (i64 {shift}))"
        )
        inside = to.bits(to.op(f"icmp ult {V64} {indices}, {to.splat(limit, 'i64')}"))
        outside = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
        plain = to.op(f"icmp eq i32 {outside}, 0")
        to.do(f"br i1 {plain}, label %gather, label %slow", "gather:")
        to.do(f"store {V64} %a, ptr %area, align 64")
        _checked(to, form, stores, flags, "anywhere", to.number("%area"))
        pointers = to.pointers(to.op(f"inttoptr i64 {arena} to ptr"), "%a", "i64", form)
        shadows = to.op(f"inttoptr i64 {to.field('%ctx', Context.SHADOW)} to ptr")
        if stores:
            to.scatter(value, pointers, "%lanes", form)
        else:
            gathered = to.gather(pointers, "%lanes", form)
            if not form.alone:
                to.split(gathered, form)
        noted = to.op(f"icmp ne i64 {to.field(cache, 16)}, 0")
        to.do(f"br i1 {noted}, label %note, label %noted", "note:")
        if stores:
            ones = f"splat ({form.kind} {ones_of(form)})"
            to.scatter(ones, to.pointers(shadows, "%a", "i64", form), "%lanes", form)
            to.do("br label %noted")
        else:
            seen = to.gather(to.pointers(shadows, "%a", "i64", form), "%lanes", form)
            to.do(f"br i1 {_unseen(to, form, seen)}, label %slow, label %noted")
        to.do("noted:")
        map_ = to.field("%ctx", Context.WRITES if stores else Context.READS)
        to.do(f"br i1 {to.op(f'icmp eq i64 {map_}, 0')}, label %counted, label %mapany", "mapany:")
        places = to.pointers(to.op(f"inttoptr i64 {map_} to ptr"), "%a", "i64", form)
        to.scatter(f"splat ({form.kind} {ones_of(form)})", places, "%lanes", form)
        to.do("br label %counted", "counted:", f"br i1 {quiet}, label %out1, label %direct", "direct:")
        _count(to, form, stores, "direct", "any", "out1")
        to.do("out1:")
        finish(to, form, stores, gathered)
    else:
        to.do("br label %slow")
    to.do("slow:")
    _in_shared(to, form, stores, quiet)
    to.do("lanewise:")
    slowly = slow(to, form, stores, "%a", space)
    to.do(f"br i1 {quiet}, label %out2, label %sum", "sum:")
    generic = to.op(f"icmp eq i64 {space}, 3")
    to.do(f"br i1 {generic}, label %windows, label %sectors", "windows:")
    items = (to.number("%ctx"), "%site", "%mask64", to.number("%area"), size, int(not stores))
    to.op(f"call i64 @count_windows({given(items)})")
    to.do("br label %out2", "sectors:")
    items = (to.number("%ctx"), "%site", "%mask64", to.number("%area"), size, int(not stores))
    to.op(f"call i64 @count_sectors({given(items)})")
    to.do("br label %out2", "out2:")
    finish(to, form, stores, slowly)
    return "\n".join([*to.lines, "}", ""])


def _checked(to: Text, form: Form, stores: bool, flags: str, way: str, where: str) -> None:
    """Hold an access against those of other CTAs, if its site is checked; ``race_row`` and ``race_anywhere`` say how."""
    asked = to.op(f"icmp ne i8 {to.op(f'and i8 {flags}, {Race.GLOBAL}')}, 0")
    to.do(f"br i1 {asked}, label %{way}asked, label %{way}free", f"{way}asked:")
    values = "0"
    if stores and form.alone:
        to.do(f"store {form.raw} %v, ptr %out, align 64")
        values = to.number("%out")
    elif stores:
        values = to.number("%vals")
    items = (to.number("%ctx"), "%site", "%mask64", where, values, form.width, form.size, 4 if stores else 8)
    to.op(f"call i64 @race_{way}({given(items)})")
    to.do(f"br label %{way}free", f"{way}free:")


def _in_shared(to: Text, form: Form, stores: bool, quiet: str) -> None:
    """If all lanes of a generic access go to shared memory: the access made there. Else on to ``lanewise``."""
    table = to.field("%ctx", Context.NEAR, "ptr")
    function = to.op(f"load ptr, ptr {to.place(table, to.op('shl i64 %site, 3'))}")
    base = to.splat(to.field("%ctx", Context.SHARED_WINDOW), "i64")
    within = to.op(f"sub {V64} %a, {base}")
    span = to.splat(to.field("%ctx", Context.WINDOW_BYTES), "i64")
    inside = to.bits(to.op(f"icmp ult {V64} {within}, {span}"))
    stray = to.op(f"and i32 %mask, {to.op(f'xor i32 {inside}, -1')}")
    tests = [
        to.op(f"icmp ne ptr {function}, null"),
        to.op(f"icmp eq i32 {stray}, 0"),
        to.op("icmp ne i32 %mask, 0"),
    ]
    to.do(f"br i1 {to.all(tests)}, label %near, label %lanewise", "near:")
    shape = to.place(to.field("%ctx", Context.SHAPES, "ptr"), to.op(f"mul i64 %site, {SHAPE_BYTES}"))
    fresh = to.op(f"icmp eq i64 {to.field(shape, 528)}, 1")
    to.do(f"br i1 {fresh}, label %nearby, label %forget", "forget:")
    # the site's record is that of an access of the arena: neither is to take the other's for its own
    for place, value in ((128, 0), (512, 0), (528, 1)):
        to.do(f"store i64 {value}, ptr {to.place(shape, place)}")
    to.do("br label %nearby", "nearby:")
    window = to.field(to.field("%ctx", Context.CTA, "ptr"), Cta.WINDOW)
    own = to.op(f"sub {V64} {within}, {to.splat(window, 'i64')}")
    arguments = f"ptr %ctx, i64 %site, i32 %mask, {V32} {to.op(f'trunc {V64} {own} to {V32}')}"
    made = ""
    if not form.alone:
        to.do(f"call void {function}({arguments}, ptr %vals)")
    elif stores:
        to.do(f"call void {function}({arguments}, {form.raw} %v)")
    else:
        made = to.op(f"call {form.raw} {function}({arguments})")
    to.do(f"br i1 {quiet}, label %moved, label %tally", "tally:")
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    lanes = to.op(f"zext i32 {to.op('call i32 @llvm.ctpop.i32(i32 %mask)')} to i64")
    to.bump(record, Counter.SHARED_LANES, lanes)
    to.bump(record, Counter.SHARED_REQUESTS, "1")
    to.bump(record, Counter.ELSEWHERE, "1")
    to.do("br label %moved", "moved:")
    finish(to, form, stores, made)


def _unseen(to: Text, form: Form, seen: str) -> str:
    """Whether a byte of an active lane's shadow is 0."""
    count = LANES * form.size
    raw = to.op(f"bitcast {form.raw} {seen} to <{count} x i8>")
    zero = to.op(f"icmp eq <{count} x i8> {raw}, zeroinitializer")
    bad = to.op(f"and <{count} x i1> {zero}, {to.repeat('%lanes', 'i1', form.size)}")
    return to.op(f"icmp ne i{count} {to.op(f'bitcast <{count} x i1> {bad} to i{count}')}, 0")


def _count(to: Text, form: Form, stores: bool, before: str, label: str, then: str) -> None:
    """Sectors, lines and, of a load, passes of an access of one allocation, whatever its lanes; those of the last access of the site
    are remembered with the distances of its lanes. From the label ``before`` to ``then``."""
    shape = to.place(to.field("%ctx", Context.SHAPES, "ptr"), to.op(f"mul i64 %site, {SHAPE_BYTES}"))
    record = to.place(to.field("%ctx", Context.SITES, "ptr"), to.op(f"mul i64 %site, {SITE_BYTES}"))
    alike, distances = _as_before(to, shape, ((0, 5), (256, 7)), 512)
    known = to.field(shape, 520)
    to.do(f"br i1 {alike}, label %{label}known, label %{label}new")
    to.do(f"{label}new:", f"store {V64} %a, ptr %area, align 64")
    counted = to.op(f"call i64 @sectors_of(i64 {to.number('%area')}, i64 %mask64)")
    _remember(to, shape, distances, 512, counted)
    to.do(f"store i64 0, ptr {to.place(shape, 528)}")
    to.do(f"br label %{label}known", f"{label}known:")
    result = to.op(f"phi i64 [ {known}, %{before} ], [ {counted}, %{label}new ]")
    to.bump(record, Counter.SECTORS, to.op(f"and i64 {result}, 63"))
    to.bump(record, Counter.LINES, to.op(f"lshr i64 {result}, 6"))
    if not stores:
        alike, distances = _as_before(to, shape, ((576, max(form.shift, 2)),), 832)
        known = to.field(shape, 840)
        to.do(f"br i1 {alike}, label %{label}kept, label %{label}passes")
        to.do(f"{label}passes:", f"store {V64} %a, ptr %area, align 64")
        lanes = to.op(f"zext i32 {to.op('call i32 @llvm.ctpop.i32(i32 %mask)')} to i64")
        alone = to.op(f"icmp eq i64 {to.op(f'and i64 {result}, 63')}, {lanes}")
        items = (
            to.number("%ctx"),
            "%mask64",
            to.number("%area"),
            form.size,
            0,
            to.op(f"zext i1 {alone} to i64"),
        )
        both = to.op(f"call i64 @wavefronts_of({given(items)})")
        passes = to.op(f"and i64 {both}, 63")
        _remember(to, shape, distances, 832, passes)
        to.do(f"br label %{label}kept", f"{label}kept:")
        result = to.op(f"phi i64 [ {known}, %{label}known ], [ {passes}, %{label}passes ]")
        to.bump(record, Counter.GLOBAL_WAVEFRONTS, result)
    to.do(f"br label %{then}")


def _as_before(
    to: Text, shape: str, units: Sequence[tuple[int, int]], mask: int
) -> tuple[str, list[tuple[str, str]]]:
    """Whether active lanes and their distances, in units of so many bits, are those remembered at these places of the shape; and
    the distances with their places."""
    differing = ""
    distances = []
    for place, bits in units:
        pieces = to.op(f"lshr {V64} %a, splat (i64 {bits})")
        first = to.splat(to.op(f"extractelement {V64} {pieces}, i32 0"), "i64")
        cell = to.place(shape, place)
        distances.append((to.op(f"sub {V64} {pieces}, {first}"), cell))
        remembered = to.op(f"load {V64}, ptr {cell}, align 64")
        differs = to.bits(to.op(f"icmp ne {V64} {distances[-1][0]}, {remembered}"))
        differing = to.op(f"or i32 {differing}, {differs}") if differing else differs
    other = to.op(f"and i32 %mask, {differing}")
    alike = to.op(f"icmp eq i64 %mask64, {to.field(shape, mask)}")
    return to.op(f"and i1 {alike}, {to.op(f'icmp eq i32 {other}, 0')}"), distances


def _remember(to: Text, shape: str, distances: list[tuple[str, str]], mask: int, result: str) -> None:
    """Active lanes at ``mask``, the result behind it, the distances at their places."""
    to.do(
        f"store i64 {result}, ptr {to.place(shape, mask + 8)}",
        f"store i64 %mask64, ptr {to.place(shape, mask)}",
    )
    for value, cell in distances:
        to.do(f"store {V64} {value}, ptr {cell}, align 64")
