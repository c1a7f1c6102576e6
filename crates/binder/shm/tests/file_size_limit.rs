//! Shared memory in a process whose files may not grow.

use baton_shm::mapping::create;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The only test in this process: the limit is the process's.
#[test]
fn memory_beyond_the_limit_of_file_sizes_is_refused_without_a_signal() {
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), ..before }).unwrap();
    let created = [8192, 4096].map(|bytes| create("limited", bytes).map(drop));
    // What the harness prints may go to a file.
    setrlimit(Resource::Fsize, before).unwrap();
    assert_eq!(created, [Err(Errno::FBIG), Ok(())]);
}
