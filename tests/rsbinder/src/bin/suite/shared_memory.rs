//! Shared memory: as a descriptor, and as Android's IMemory objects.

use rsbinder::StatusCode;
use rsbinder::shared_memory::{
    BpMemory, FLAG_READ_ONLY, HeapCache, IMemory, IMemoryHeap, MemoryBase, MemoryDealer,
    MemoryHeapBase, SharedMemory, export_heap,
};
use std::sync::Arc;

use crate::check::{Outcome, equal, holds, step};
use crate::child::{self, Loopers};
use crate::fmq;
use crate::peer;

fn region(peer: &dyn peer::IPeer) -> Outcome {
    let memory = SharedMemory::create(64 * 1024)?;
    memory.write_at(0, &vec![1; memory.size()])?;
    for round in 2..5u8 {
        let sum = peer.increment(&memory.to_parcel_fd()?)?;
        equal("sum", sum, i64::from(round) * memory.size() as i64)?;
        let mut bytes = vec![0; memory.size()];
        memory.read_at(0, &mut bytes)?;
        holds("the service's bytes show here", bytes.iter().all(|byte| *byte == round))?;
    }

    step("a region sealed against writing");
    memory.seal_read_only()?;
    let refused = peer.increment(&memory.to_parcel_fd()?).map_err(StatusCode::from);
    equal("writing", refused, Err(StatusCode::PermissionDenied))
}

fn allocations(service: &dyn fmq::IMemoryPeer) -> Outcome {
    let cache = HeapCache::new();
    let mut kept = Vec::new();
    for fill in 1..=10i8 {
        let memory = BpMemory::new_with_cache(service.allocate(1000, fill)?, cache.clone());
        memory.resolve()?;
        holds("at least the size asked for", memory.size() >= 1000)?;
        let mut bytes = vec![0; 1000];
        memory.read_at(0, &mut bytes)?;
        holds("the service's bytes", bytes.iter().all(|byte| *byte == fill as u8))?;
        kept.push(memory);
    }
    equal("heaps mapped for ten allocations", cache.len(), 1)
}

fn own_heap(service: &dyn fmq::IMemoryPeer) -> Outcome {
    let dealer = MemoryDealer::new(64 * 1024, 0)?;
    let allocation = dealer.allocate(512)?;
    allocation.write_at(0, &[2; 512])?;
    equal("sum", service.sum(&allocation.export())?, 1024)?;

    let heap = Arc::new(MemoryHeapBase::new(4096, FLAG_READ_ONLY)?);
    heap.write_at(0, &[3; 4096])?;
    let exported = export_heap(heap.clone());
    let window = Arc::new(MemoryBase::new(heap as Arc<dyn IMemoryHeap>, exported, 1024, 100)?);
    equal("sum of a window of a heap only to be read", service.sum(&window.export())?, 300)
}

pub fn scenario() -> Outcome {
    child::open(Loopers::Pool)?;
    step("a region by its descriptor");
    let (child, peer) = peer::start("suite.memory.peer")?;
    region(&*peer)?;
    child.end()?;

    step("the service's allocations");
    let (child, service) = fmq::start("suite.memory.service")?;
    allocations(&*service)?;

    step("this process's heap, read by the service");
    own_heap(&*service)?;
    child.end()
}
