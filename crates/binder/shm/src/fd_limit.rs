//! The limit of a process's descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft RLIMIT_NOFILE of the process to the hard one. Returns the limit, which is as it
/// was if the system refuses, and a million if there is none.
pub fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_the_hard_one() {
        let raised = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(raised, limit.current.unwrap_or(1 << 20));
    }
}
