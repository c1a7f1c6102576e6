//! placeholder
use crate::ratios::Results;
use crate::report::Report;
/// page
pub fn page(_report: &Report, _results: &Results) -> String {
    String::new()
}
