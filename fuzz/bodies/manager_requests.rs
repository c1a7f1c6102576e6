//! Fuzzes the service manager's decoder with arbitrary arguments behind each header that it knows.
//! A name that it returns lay in the request.

use super::input::Input;
use baton::android::Write;
use baton::service_manager::INTERFACE;
use baton_manager::Release;
use baton_manager::protocol::{Request, decode};

const MARK: i32 = i32::from_be_bytes(*b"SYST");
const RELEASES: [Release; 6] = [
    Release::Eleven,
    Release::Twelve,
    Release::Thirteen,
    Release::Fourteen,
    Release::Fifteen,
    Release::Sixteen,
];

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (release, code) = (input.pick(&RELEASES), u32::from(input.u8() % 20));
    let header = input.pick(&[&[0, -1, MARK][..], &[0, -1], &[0], &[]]);
    let mut request = baton::Parcel::new();
    header.iter().for_each(|word| request.write_i32(*word));
    if !header.is_empty() {
        request.write_string(INTERFACE);
    }
    request.write(input.bytes(usize::MAX));
    let data = request.data();
    let (Request::Get(_, name)
    | Request::Add { name, .. }
    | Request::Watch(name)
    | Request::Unwatch(name)
    | Request::WatchClients(name)
    | Request::TryUnregister(name)) = (match decode(release, code, data) {
        Ok((_, request)) => request,
        Err(_) => return,
    })
    else {
        return;
    };
    assert!(2 * name.encode_utf16().count() <= data.len(), "{name:?}");
}
