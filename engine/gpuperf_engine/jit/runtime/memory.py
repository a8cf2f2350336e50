"""Runtime of generated code: address translation, checks and records of memory accesses.

Written in the subset of ``compile_python`` and compiled, never run as Python. Spaces: 0 the arena (global, const, kernel
parameters), 1 shared, 2 local, 3 generic.
"""

from __future__ import annotations

from ...isa.rules import Noted
from ..ir.abi import UNWRITTEN, Context, Cta, Range, Reach, State
from ..ir.access_records import BeyondRecord, Counter, SiteCache, StrayAtomic, UnseenRecord
from ..ir.race_records import Race
from .cluster import breach, cluster_cta
from .count import bump
from .intrinsics import (
    call,
    fill,
    load8,
    load16,
    load32,
    store8,
    store32,
    trailing_zeros,
    unsigned_less,
)
from .races.accesses import race_alone
from .races.flags import race_flag
from .races.shared_memory import race_at


def find(context: Context, address: int) -> Range:
    """Return the row of the last allocation that starts at or below an address; 0 if there is none."""
    table = context.TABLE
    low = 0
    high = context.TABLE_ROWS
    while low < high:
        middle = (low + high) >> 1
        if unsigned_less(address, Range(table + middle * Range.BYTES).START):
            high = middle
        else:
            low = middle + 1
    if low == 0:
        return Range(0)
    return Range(table + (low - 1) * Range.BYTES)


def refill(context: Context, site: int, address: int, size: int, writes: int) -> int:
    """Point the cache of a site to the allocation that contains an access; 0 if there is none or it is read-only."""
    row = find(context, address)
    if row == 0:
        return 0
    start = row.START
    end = row.END
    if unsigned_less(end, address + size) or unsigned_less(address + size, address):
        return 0
    kind = row.KIND & 255
    reaches = load8(context.REACHES + site)
    if (writes and kind) or (reaches >> kind) & 1 == 0:
        return 0
    if reaches == Reach.PARAM and start != context.PARAM_ADDRESS:
        return 0
    cache = SiteCache(context.CACHE + site * SiteCache.BYTES)
    cache.START = start
    cache.SPAN = end - start
    cache.TRACKED = 1 - is_initialized(context, row, writes)
    return 1


def is_initialized(context: Context, row: Range, writes: int) -> int:
    """Whether every byte of an allocation has been written. Calls ``SAVE`` before the first access to it, or the first store."""
    flags = row.FLAGS
    if flags & 2 or (flags & 4 and writes):
        call(context.SAVE, context.SAVE_RECORD, row, writes)
    return row.FLAGS & 1


def fault(context: Context, site: int, lane: int, address: int, space: int) -> int:
    """Record the first invalid access for the message."""
    if context.FAULTED:
        return 0
    context.FAULTED = 1
    context.FAULT_SITE = site
    context.FAULT_LANE = lane
    context.FAULT_ADDRESS = address
    context.FAULT_SPACE = space
    return 0


def note(context: Context, address: int, size: int, how: int) -> int:
    """Record which bytes of the arena are read and written, if the launch tracks its footprint."""
    if how & 8 and context.READS:
        fill(context.READS + address, 1, size)
    if how & 4 and context.WRITES:
        fill(context.WRITES + address, 1, size)
    return 0


def beyond(
    context: Context, cta: Cta, state: State, site: int, lane: int, address: int, size: int, how: int
) -> int:
    """Whether an access that crosses the end of an object may read the padding after it; records it if so."""
    row = find(context, address)
    if row == 0:
        return 0
    end = row.END
    kind = row.KIND
    last = address + size
    if kind & 255 or kind < 256 or load8(context.REACHES + site) & 1 == 0:
        return 0
    if kind & 256:
        piece = load8(context.PIECES + site)
        if piece == 0 or context.STRICT or not unsigned_less(last - piece, end):
            return 0
    elif unsigned_less(end + (kind >> 9), last):
        return 0
    first = BeyondRecord(context.BEYOND + site * BeyondRecord.BYTES)
    index = cta.INDEX + 1
    thread = state.INDEX * 32 + lane
    known = first.CTA
    if known == 0 or index < known or (index == known and thread < first.THREAD):
        first.CTA = index
        first.THREAD = thread
        first.ADDRESS = address
    if first.EXCESS < last - end:
        first.EXCESS = last - end
    inside = 0
    if unsigned_less(address, end):
        inside = end - address
    if is_initialized(context, row, how & 4) == 0:
        shadow = address + context.SHADOW
        if how & 8:
            unseen(context, site, lane, address, shadow, inside, 0)
        if how & 4:
            mark(shadow, inside)
    note(context, address, inside, how)
    return 1


def used_size(context: Context, site: int, size: int) -> int:
    """Bytes of a load up to the last one that the program uses."""
    used = load32(context.USED + 4 * site)
    while size > 0 and used >> (size - 1) & 1 == 0:
        size -= 1
    return size


def unseen(context: Context, site: int, lane: int, address: int, shadow: int, size: int, first: int) -> int:
    """Record if any of these bytes of a lane, from byte ``first`` of the access on, was never written, and is used. ``address``: the
    generic one."""
    used = load32(context.USED + 4 * site)
    index = 0
    while index < size:
        if load8(shadow + index) == 0 and used >> (first + index & 31) & 1:
            return keep_unseen(context, site, lane, address + index)
        index += 1
    return 0


def keep_unseen(context: Context, site: int, lane: int, address: int) -> int:
    """Record a read of uninitialised memory if it is that of the first thread so far."""
    first = UnseenRecord(context.UNSEEN + site * UnseenRecord.BYTES)
    index = context.CTA.INDEX + 1
    thread = context.STATE.INDEX * 32 + lane
    known = first.CTA
    if known == 0 or index < known or (index == known and thread < first.THREAD):
        first.CTA = index
        first.THREAD = thread
        first.ADDRESS = address
    return 0


def mark(shadow: int, size: int) -> int:
    """Mark bytes as written."""
    index = 0
    while index < size:
        store8(shadow + index, 1)
        index += 1
    return 0


def reach(
    context: Context, cta: Cta, state: State, site: int, lane: int, address: int, size: int, how: int
) -> int:
    """Return the host address of one lane's access, or 0 after recording the fault. ``how``: space + 4 if it writes + 8 if it reads
    + 16 if it is already checked for races in shared memory + 32 if the first and last of the same lanes check for those in global
    memory."""
    space = how & 3
    offset = address
    if space == 3:
        space = 0
        if unsigned_less(address - context.SHARED_WINDOW, context.WINDOW_BYTES):
            space = 1
            offset = address - context.SHARED_WINDOW
            if load8(context.REACHES + site) & Reach.SHARED == 0:
                return fault(context, site, lane, offset, 1)
        elif unsigned_less(address - context.LOCAL_WINDOW, context.WINDOW_BYTES):
            space = 2
            offset = address - context.LOCAL_WINDOW
            reaches = load8(context.REACHES + site)
            if reaches & Reach.LOCAL == 0:
                return fault(context, site, lane, offset, 2)
            if reaches & Reach.STRAYS and breach(context, cta, Noted.LOCAL_ORDER, site, lane, offset):
                return fault(context, site, lane, offset, 2)
    if space == 1:
        return reach_shared(context, cta, site, lane, offset, size, how)
    if space == 2:
        return reach_local(context, cta, state, site, lane, offset, size, how)
    races = load16(context.RACE_SITES + 2 * site)
    if races & Race.IS_STRONG and how & 32 == 0:
        race_flag(context, site, how)
    cache = SiteCache(context.CACHE + site * SiteCache.BYTES)
    start = address - cache.START
    span = cache.SPAN
    if address & (size - 1):
        return fault(context, site, lane, address, 0)
    known = span >= size and not unsigned_less(span - size, start)
    if not known and refill(context, site, address, size, how & 4) == 0:
        inside = used_size(context, site, size)
        if inside < size and refill(context, site, address, inside, how & 4):
            size = inside
        elif beyond(context, cta, state, site, lane, address, size, how):
            return address + context.ARENA
        else:
            return fault(context, site, lane, address, 0)
    if cache.TRACKED:
        shadow = address + context.SHADOW
        if how & 8:
            unseen(context, site, lane, address, shadow, size, 0)
        if how & 4:
            mark(shadow, size)
    note(context, address, size, how)
    if races & Race.GLOBAL and how & 32 == 0:
        race_alone(context, site, lane, address, size, how)
    return address + context.ARENA


def reach_shared(context: Context, cta: Cta, site: int, lane: int, offset: int, size: int, how: int) -> int:
    """Return the host address of an access to shared memory of a CTA of the cluster; as ``reach``."""
    if cta.CLUSTER:
        if how & 3 == 1:
            # addresses of shared memory are relative to the start of the CTA's own
            offset = (offset + cta.WINDOW) & 4294967295
        remote = how & 3 == 3 or load8(context.REMOTE + site)
        if offset >> 24 != cta.RANK and not remote:
            return fault(context, site, lane, offset, 1)
        cta = cluster_cta(context, cta, site, lane, offset, 0)
        if cta == 0:
            return fault(context, site, lane, offset, 1)
        offset = offset & 16777215
    limit = context.SHARED_BYTES
    if offset & (size - 1):
        return fault(context, site, lane, offset + cta.WINDOW, 1)
    if limit < size or unsigned_less(limit - size, offset):
        size = used_size(context, site, size)
        if limit < size or unsigned_less(limit - size, offset):
            return fault(context, site, lane, offset + cta.WINDOW, 1)
    host = cta.SHARED + offset
    checked = how & 16 or load16(context.RACE_SITES + 2 * site) & Race.CHECKED == 0
    if checked == 0 and cta.RACES:
        race_at(context, cta, site, lane, offset, size, how)
    if context.WATCH == 2:
        return watched(context, cta, site, lane, host, size, how)
    distance = cta.SHARED_SHADOW
    if distance:
        if how & 4:
            cta.MARKED = 1
        if how & 8:
            unseen(context, site, lane, context.SHARED_WINDOW + offset, host + distance, size, 0)
        if how & 4:
            mark(host + distance, size)
    return host


def reach_local(
    context: Context, cta: Cta, state: State, site: int, lane: int, offset: int, size: int, how: int
) -> int:
    """Return the host address of the first word of an access to local memory; the words have a stride of 128 bytes. Of an atomic of
    several words it is that of a copy, for ``put_back``. As ``reach``."""
    limit = context.LOCAL_BYTES
    both = (how & 12) == 12
    if offset & (size - 1) or limit < size or unsigned_less(limit - size, offset):
        return fault(context, site, lane, offset, 2)
    if both and load8(context.REACHES + site) & Reach.STRAYS == 0:
        return fault(context, site, lane, offset, 2)
    warp = state.INDEX * 32 * limit
    host = cta.LOCAL + warp + (offset >> 2) * 128 + lane * 4 + (offset & 3)
    shadow = host + cta.LOCAL_SHADOW
    part = size
    if size > 4:
        part = 4
    done = 0
    while done < size:
        if how & 8:
            unseen(context, site, lane, context.LOCAL_WINDOW + offset + done, shadow, part, done)
        if how & 4:
            mark(shadow, part)
        shadow += 128
        done += part
    if both == 0 or size <= 4:
        return host
    copied = context.SCRATCH + StrayAtomic.PLACE
    StrayAtomic(copied).HOST = host
    done = 0
    while done < size:
        store32(copied + done, load32(host + done * 32))
        done += 4
    return copied


def put_back(context: Context, host: int, size: int) -> int:
    """Store the words of an atomic at an address that ``reach`` has returned, if they are a copy from local memory."""
    copied = context.SCRATCH + StrayAtomic.PLACE
    if host != copied:
        return 0
    into = StrayAtomic(copied).HOST
    done = 0
    while done < size:
        store32(into + done * 32, load32(copied + done))
        done += 4
    return 0


def is_local(context: Context, address: int, space: int) -> int:
    """Whether an access goes to local memory."""
    window = context.LOCAL_WINDOW
    if space == 3 and unsigned_less(address - window, context.WINDOW_BYTES):
        return 1
    return space == 2


def watched(context: Context, cta: Cta, site: int, lane: int, host: int, size: int, how: int) -> int:
    """Check an access to shared memory whose unwritten words have the pattern ``UNWRITTEN``; the shadow marks words to which the
    program stored that value. Unwritten words read as 0. Returns the host address to use."""
    distance = cta.SHARED_SHADOW
    start = host & -4
    end = host + size
    missing = 0
    blank = 0
    used = load32(context.USED + 4 * site)
    word = start
    while word < end:
        if load32(word) == UNWRITTEN and load8(word + distance) == 0:
            missing = 1
            if used >> (word - start) & 15 and blank == 0:
                blank = word
                if word < host:
                    blank = host
                while used >> (blank - start & 31) & 1 == 0:
                    blank += 1
            if (how & 12) == 12:
                store32(word, 0)
        if how & 4:
            store8(word + distance, 1)
        word += 4
    if how & 4:
        cta.MARKED = 1
    if (how & 8) == 0 or missing == 0:
        return host
    if blank:
        keep_unseen(context, site, lane, context.SHARED_WINDOW + blank - cta.SHARED)
    if how & 4:
        return host
    copied = context.SCRATCH + 4096
    word = start
    while word < end:
        value = load32(word)
        if value == UNWRITTEN and load8(word + distance) == 0:
            value = 0
        store32(copied + word - start, value)
        word += 4
    return copied + host - start


def phases_of(mask: int, size: int, together: int) -> int:
    """Count the groups of lanes with an active lane, where the accesses of a group (``size`` bytes per lane) have ``together``
    bytes."""
    lanes = 32
    if size * 32 > together:
        lanes = together // size
    phases = 0
    start = 0
    while start < 32:
        if mask & (((1 << lanes) - 1) << start):
            phases += 1
        start += lanes
    return phases


def reach_one(
    context: Context, cta: Cta, state: State, site: int, mask: int, address: int, size: int, how: int
) -> int:
    """Return the host address of a load of all active lanes from one address of the arena or of shared memory, never 0; counts the
    load. ``how``: space, + 4 if the load is not counted."""
    host = 0
    cache = SiteCache(context.CACHE + site * SiteCache.BYTES)
    offset = address - cache.START
    span = cache.SPAN
    flags = load16(context.RACE_SITES + 2 * site)
    plain = (
        (how & 3) == 0
        and flags & (Race.IS_STRONG | Race.GLOBAL) == 0
        and (address & (size - 1)) == 0
        and cache.TRACKED == 0
    )
    if plain and span >= size and unsigned_less(offset, span - size + 1):
        host = address + context.ARENA
        note(context, address, size, 8)
    else:
        if (how & 3) == 1:
            host = written_words(context, cta, site, address, size)
        if host == 0:
            host = reach(context, cta, state, site, trailing_zeros(mask), address, size, (how & 3) + 8)
        if host == 0:
            host = context.SCRATCH + 4096
            fill(host, 0, 32)
    if context.COUNTING and how < 4:
        if how == 0:
            bump(context, site, Counter.SECTORS, 1)
            bump(context, site, Counter.LINES, 1)
            bump(context, site, Counter.GLOBAL_WAVEFRONTS, phases_of(mask, size, 128))
        else:
            # two phases of lanes that have one address are merged
            phases = phases_of(mask, size, 256)
            bump(context, site, Counter.WAVEFRONTS, phases)
            bump(context, site, Counter.IDEAL, phases)
    return host


def own_words(context: Context, cta: Cta, site: int, offset: int, size: int) -> int:
    """Return the host address of whole words in shared memory of a CTA, where unwritten ones have the fill pattern, if nothing else is
    to be checked or recorded; else 0."""
    limit = context.SHARED_BYTES
    if context.WATCH != 2 or size < 4 or cta.CLUSTER or load16(context.RACE_SITES + 2 * site):
        return 0
    if offset & (size - 1) or limit < size or unsigned_less(limit - size, offset):
        return 0
    return cta.SHARED + offset


def written_words(context: Context, cta: Cta, site: int, offset: int, size: int) -> int:
    """As ``own_words``, but 0 if a word has the fill pattern."""
    host = own_words(context, cta, site, offset, size)
    if host:
        word = host
        while word < host + size:
            if load32(word) == UNWRITTEN:
                return 0
            word += 4
    return host


def near(context: Context, site: int, address: int, size: int, space: int) -> int:
    """Return the host address of an access inside the allocation of the site's cache, else 0."""
    cache = SiteCache(context.CACHE + site * SiteCache.BYTES)
    offset = address - cache.START
    span = cache.SPAN
    if space == 1 or space == 2 or address & (size - 1) or span < size or cache.TRACKED:
        return 0
    if load16(context.RACE_SITES + 2 * site) & Race.GLOBAL:
        return 0
    if unsigned_less(span - size, offset):
        return 0
    return address + context.ARENA
