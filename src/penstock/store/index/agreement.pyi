from typing_extensions import Buffer

from penstock.base.seq_set import SeqSet
from penstock.format.block_scan import BlockScan
from penstock.store.index.index import Index

def alive_in(scan: BlockScan, dead: SeqSet, floor: int) -> tuple[int, int]: ...
def rows_disagree(
    scan: BlockScan,
    block: Buffer,
    offsets: Buffer,
    sizes: Buffer,
    subjects: Buffer,
    seqs: Buffer,
    names: Buffer,
    is_dense: bool,
    seq_base: int,
) -> str | None: ...
def facts_of(scan: BlockScan) -> tuple[int, int, int, int, int, int]: ...
def filter_lacks(filter: bytes, names: Buffer) -> bool: ...
def subjects_disagree(index: Index) -> str | None: ...
