//! Fast message queues, which one side of a call makes and both use.

use std::sync::Mutex;
use std::time::Duration;

use baton_rsbinder_programs::suite::IMemoryPeer::BnMemoryPeer;
pub use baton_rsbinder_programs::suite::IMemoryPeer::IMemoryPeer;
use rsbinder::fmq::{MQDescriptor, SynchronizedReadWrite};
use rsbinder::shared_memory::{Allocation, BpMemory, IMemory, MemoryDealer};
use rsbinder::{BinderResult, Interface, SIBinder, StatusCode, Strong, hub};
use rsbinder_fmq::{AttachPolicy, Descriptor, MessageQueue, NOT_EMPTY, NOT_FULL};
use std::sync::Arc;

use crate::check::{Outcome, PATIENCE, equal, holds, step};
use crate::child::{self, Child, Loopers};

type Queue = MQDescriptor<i32, SynchronizedReadWrite>;

const POLICY: AttachPolicy =
    AttachPolicy { max_capacity: 1 << 20, require_seal: true, require_event_flag: true };

/// Time that a queue's other side may take for one element.
const WAIT: Option<Duration> = Some(PATIENCE);

struct Service {
    dealer: Arc<MemoryDealer>,
    allocations: Mutex<Vec<Allocation>>,
}

impl Interface for Service {}

fn attach(queue: &Queue) -> Result<MessageQueue<i32>, StatusCode> {
    Ok(MessageQueue::attach(&Descriptor::try_from(queue)?, &POLICY)?)
}

impl IMemoryPeer for Service {
    fn allocate(&self, size: i32, fill: i8) -> BinderResult<SIBinder> {
        let allocation = self.dealer.allocate(size as usize)?;
        allocation.write_at(0, &vec![fill as u8; size as usize])?;
        let exported = allocation.export();
        self.allocations.lock().unwrap().push(allocation);
        Ok(exported)
    }

    fn sum(&self, memory: &SIBinder) -> BinderResult<i64> {
        let memory = BpMemory::new(memory.clone());
        memory.resolve()?;
        let mut bytes = vec![0; memory.size()];
        memory.read_at(0, &mut bytes)?;
        Ok(bytes.iter().map(|byte| i64::from(*byte)).sum())
    }

    fn produce(&self, capacity: i32, count: i32) -> BinderResult<Queue> {
        let mut queue =
            MessageQueue::<i32>::create(capacity as usize, true).map_err(StatusCode::from)?;
        let descriptor = queue.descriptor().map_err(StatusCode::from)?.try_into()?;
        std::thread::spawn(move || {
            (0..count).all(|n| queue.write_blocking(&[n], NOT_FULL, NOT_EMPTY, WAIT).is_ok())
        });
        Ok(descriptor)
    }

    fn consume(&self, queue: &Queue, count: i32) -> BinderResult<i64> {
        let mut queue = attach(queue)?;
        let mut sum = 0;
        let mut element = [0];
        for _ in 0..count {
            queue
                .read_blocking(&mut element, NOT_EMPTY, NOT_FULL, WAIT)
                .map_err(StatusCode::from)?;
            sum += i64::from(element[0]);
        }
        Ok(sum)
    }
}

/// Role `memory NAME`.
pub fn serve(arguments: &[String]) -> Outcome {
    child::open(Loopers::Pool)?;
    let dealer = MemoryDealer::new(1 << 20, 0)?;
    let service = Service { dealer, allocations: Mutex::default() };
    child::serve(&arguments[0], BnMemoryPeer::new_binder(service).as_binder())
}

pub fn start(name: &str) -> Outcome<(Child, Strong<dyn IMemoryPeer>)> {
    let child = Child::start("memory", &[name])?;
    Ok((child, hub::check_interface(name)?))
}

pub fn scenario() -> Outcome {
    const ELEMENTS: i32 = 20_000;
    child::open(Loopers::Pool)?;
    let (child, service) = start("suite.fmq.service")?;

    step("a queue that the service fills");
    let mut queue = attach(&service.produce(64, ELEMENTS)?)?;
    holds("capacity", queue.capacity() >= 64)?;
    let mut element = [0];
    for n in 0..ELEMENTS {
        queue.read_blocking(&mut element, NOT_EMPTY, NOT_FULL, WAIT)?;
        equal("element", element[0], n)?;
    }

    step("a queue that the service empties");
    let mut queue = MessageQueue::<i32>::create(64, true)?;
    let descriptor: Queue = queue.descriptor()?.try_into()?;
    let consumer = std::thread::spawn(move || service.consume(&descriptor, ELEMENTS));
    for n in 0..ELEMENTS {
        queue.write_blocking(&[n], NOT_FULL, NOT_EMPTY, WAIT)?;
    }
    let sum = consumer.join().expect("the caller did not panic")?;
    equal("sum", sum, i64::from(ELEMENTS) * i64::from(ELEMENTS - 1) / 2)?;
    child.end()
}
