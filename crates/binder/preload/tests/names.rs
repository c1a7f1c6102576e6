//! The paths of devices: their attributes, their other names, and functions that set them up.

mod setting;

use baton_abi::uapi::*;
use setting::*;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::PathBuf;
use std::ptr::null;

#[test]
fn device_paths_have_the_attributes_of_devices() {
    if is_outside("device_paths_have_the_attributes_of_devices") {
        return;
    }
    for path in ["/dev/binder", "/dev/binderfs/binder"] {
        assert!(fs::metadata(path).unwrap().file_type().is_char_device(), "{path}");
        assert_eq!(fs::canonicalize(path).unwrap(), PathBuf::from(path));
        assert!(File::from(open(path, 0)).metadata().unwrap().file_type().is_char_device());
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let feature = "/dev/binderfs/features/extended_error";
    assert_eq!(fs::read_to_string(feature).unwrap(), "1\n");
    assert!(fs::read_dir("/dev/binderfs").unwrap().count() >= 3);
    let errno = |path| fs::metadata(path).unwrap_err().raw_os_error().unwrap();
    assert_eq!(errno("/dev/binderfs/nothing"), libc::ENOENT);
    assert_eq!(errno("/dev/hwbinder"), libc::ENOENT);
    // Other paths are unchanged.
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    symlink("/dev/binder", &link).unwrap();
    assert_eq!(fs::read_link(link).unwrap(), PathBuf::from("/dev/binder"));
}

#[test]
fn a_device_can_be_opened_by_its_aliases() {
    if is_outside("a_device_can_be_opened_by_its_aliases") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    symlink("/dev/binderfs/binder", name("link")).unwrap();
    symlink("link", name("second")).unwrap();
    symlink("/dev/binderfs", name("binderfs")).unwrap();
    std::env::set_current_dir("/dev").unwrap();
    let names = [
        "//dev/./binder".to_owned(),
        "/dev/../dev//binderfs/binder".to_owned(),
        "binder".to_owned(),
        "binderfs/features/../binder".to_owned(),
        name("link"),
        name("second"),
        name("binderfs/binder"),
    ];
    for name in names {
        assert_eq!(version(through_libc, &open(&name, 0)), Ok(PROTOCOL_VERSION), "{name}");
        assert!(fs::metadata(&name).unwrap().file_type().is_char_device(), "{name}");
        let place = fs::canonicalize(&name).unwrap();
        assert!(place.starts_with("/dev") && place.ends_with("binder"), "{name} is {place:?}");
    }
    let dev = File::open("/dev").unwrap();
    // SAFETY: a C string; the descriptor is new.
    let fd = unsafe { libc::openat(dev.as_raw_fd(), c"binder".as_ptr(), libc::O_RDWR) };
    // SAFETY: as above.
    assert_eq!(version(through_libc, &unsafe { OwnedFd::from_raw_fd(fd) }), Ok(PROTOCOL_VERSION));
    // A path that leads nowhere still fails.
    symlink("third", name("third")).unwrap();
    let error = |path: &str| fs::metadata(path).unwrap_err().raw_os_error();
    for (path, errno) in [
        (name("nothing"), libc::ENOENT),
        (name("binder"), libc::ENOENT),
        (name("third"), libc::ELOOP),
    ] {
        assert_eq!(error(&path), Some(errno), "{path}");
    }
    // The second one where the machine has a device of that name.
    assert!([Some(libc::ENOENT), Some(libc::ENOTDIR)].contains(&error("/dev/binder/")));
}

#[test]
fn setting_up_devices_succeeds() {
    if is_outside("setting_up_devices_succeeds") {
        return;
    }
    let mount = |target: &CStr| {
        let (kind, nothing) = (c"binder".as_ptr(), null());
        // SAFETY: C strings, and no data.
        unsafe { libc::mount(kind, target.as_ptr(), kind, 0, nothing) }
    };
    assert_eq!(mount(c"/dev/binderfs"), 0);
    assert_eq!(mount(c"/nowhere"), -1);
    let errno = symlink("/dev/binderfs/binder", "/dev/binder").unwrap_err().raw_os_error();
    assert_eq!(errno, Some(libc::EEXIST));
}

#[test]
fn contexts_are_added_through_binder_control() {
    if is_outside("contexts_are_added_through_binder_control") {
        return;
    }
    let control = open("/dev/binderfs/binder-control", 0);
    let mut added = BinderfsDevice { name: [0; 256], major: 7, minor: 7 };
    added.name[..5].copy_from_slice(b"extra");
    let argument = (&raw mut added).cast();
    assert_eq!(through_libc(&control, BINDER_CTL_ADD, argument), Ok(0));
    assert_eq!(inline(&control, BINDER_CTL_ADD, argument), Err(libc::EEXIST));
    assert!(fs::metadata("/dev/binderfs/extra").unwrap().file_type().is_char_device());
    let device = open("/dev/binderfs/extra", 0);
    assert_eq!(version(through_libc, &device), Ok(PROTOCOL_VERSION));
    let errno = File::open("/dev/binderfs/none").unwrap_err().raw_os_error();
    assert_eq!(errno, Some(libc::ENOENT));
}

/// As `ctypes.CDLL("libc.so.6")` and other foreign function interfaces do.
#[test]
fn functions_that_are_looked_up_in_the_c_library_find_devices() {
    if is_outside("functions_that_are_looked_up_in_the_c_library_find_devices") {
        return;
    }
    // SAFETY: C strings; the library is loaded, and stays.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    let find = |handle, name: &CStr| {
        // SAFETY: a library's handle, and a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    type Open = unsafe extern "C" fn(*const libc::c_char, libc::c_int) -> libc::c_int;
    // SAFETY: the function's type.
    let open: Open = unsafe { std::mem::transmute(find(library, c"open").unwrap()) };
    // SAFETY: a C string.
    let fd = unsafe { open(c"/dev/binder".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is this test's own.
    let device = unsafe { OwnedFd::from_raw_fd(fd) };
    assert_eq!(version(through_libc, &device), Ok(PROTOCOL_VERSION));
    // What is not interposed is the C library's own, and what there is not is an error.
    assert_eq!(find(library, c"getpid"), find(libc::RTLD_NEXT, c"getpid"));
    assert_eq!(find(library, c"no_such_function"), None);
    // SAFETY: a query.
    assert!(!unsafe { libc::dlerror() }.is_null());
    // The interposer is next to this program, and the C library's function is next to that.
    assert_eq!(find(library, c"open"), find(libc::RTLD_NEXT, c"open"));
    assert_eq!(find(library, c"open"), find(libc::RTLD_DEFAULT, c"open"));
}
