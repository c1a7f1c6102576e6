//! Times of batches: the clock takes as long as several IPCs.

use crate::service::now_ns;

/// What one of `n_ipcs` took of each batch, in picoseconds. Of the first batch, which finds nothing
/// in the caches, none is told.
pub fn batches<E>(
    n_batches: u64,
    n_ipcs: u64,
    mut batch: impl FnMut(u64) -> Result<(), E>,
) -> Result<Vec<u64>, E> {
    let mut times = Vec::new();
    for number in 0..=n_batches {
        let start_ns = now_ns();
        batch(number)?;
        if number > 0 {
            times.push((now_ns() - start_ns) * 1000 / n_ipcs);
        }
    }
    Ok(times)
}
