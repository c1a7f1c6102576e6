//! The fuzz targets of the driver, in every test run: see `fuzz/seeded.rs`.

#[path = "../../../../fuzz/bodies/mod.rs"]
mod bodies;
#[path = "../../../../fuzz/seeded.rs"]
mod seeded;

/// One test, so that the replay names the input that runs.
#[test]
fn bodies_hold_for_any_bytes() {
    seeded::check("parcel_objects", 20_000, bodies::parcel_objects::run);
    seeded::check("control_messages", 10_000, bodies::control_messages::run);
    seeded::check("uapi_commands", 500, bodies::uapi_commands::run);
    seeded::check("lane_messages", 500, bodies::lane_messages::run);
}
