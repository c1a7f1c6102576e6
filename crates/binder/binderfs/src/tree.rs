//! The files of a binderfs, without I/O.
//!
//! ```text
//!   /  binder-control  features/<feature>  <context>...
//! ```
//!
//! A context's file has a new node each time it is looked up: the kernel passes all opens of one
//! node to one backing file, and each open of a device has a receive buffer of its own.

use crate::protocol::{Attributes, SET_GID, SET_MODE, SET_UID, SetAttributesIn};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};

/// The root directory's node, by FUSE.
pub const ROOT: u64 = 1;
/// The node of binder-control.
pub const CONTROL: u64 = 2;
const CONTROL_NAME: &str = "binder-control";
const FEATURES: u64 = 3;
const FEATURES_NAME: &str = "features";
const FIRST_FEATURE: u64 = 4;
/// Features of the driver, as binderfs names them.
const FEATURE_NAMES: [&str; 3] = ["oneway_spam_detection", "extended_error", "freeze_notification"];
/// The contents of each feature's file.
pub const FEATURE: &[u8] = b"1\n";
const FIRST_DEVICE: u64 = 1 << 32;

/// Longest name of a device.
const MAX_NAME_BYTES: usize = 255;

/// A device's file, whatever its node.
#[derive(Clone, Copy, Debug)]
struct Owned {
    permissions: u32,
    uid: u32,
    gid: u32,
}

/// A node of a device.
#[derive(Clone, Debug)]
struct DeviceNode {
    context: String,
    lookups: u64,
    is_opened: bool,
    owned: Owned,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its node, or an inode number that only listings show.
    pub node: u64,
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// All files.
#[derive(Debug)]
pub struct Tree {
    owner: (u32, u32),
    devices: BTreeMap<String, Owned>,
    nodes: HashMap<u64, DeviceNode>,
    last_node: u64,
}

impl Tree {
    /// A tree without devices, whose files belong to this user and group.
    pub fn new(uid: u32, gid: u32) -> Tree {
        let (devices, nodes) = (BTreeMap::new(), HashMap::new());
        Tree { owner: (uid, gid), devices, nodes, last_node: FIRST_DEVICE - 1 }
    }

    /// Adds a device. `EEXIST` if there is a file of this name, `EACCES` for a name that no file
    /// can have, as the kernel's binderfs answers.
    pub fn add(&mut self, context: &str) -> Result<(), Errno> {
        let is_no_name = context.is_empty()
            || context.len() > MAX_NAME_BYTES
            || context.contains(['/', '\0'])
            || matches!(context, "." | "..");
        if is_no_name {
            return Err(Errno::ACCESS);
        }
        if self.devices.contains_key(context) || [CONTROL_NAME, FEATURES_NAME].contains(&context) {
            return Err(Errno::EXIST);
        }
        let (uid, gid) = self.owner;
        self.devices.insert(context.to_owned(), Owned { permissions: 0o666, uid, gid });
        Ok(())
    }

    /// Removes a device's name. Programs that have it open keep it.
    pub fn unlink(&mut self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        let device = std::str::from_utf8(name).ok().filter(|_| directory == ROOT);
        match device {
            Some(CONTROL_NAME) => Err(Errno::PERM),
            Some(FEATURES_NAME) => Err(Errno::ISDIR),
            Some(name) => self.devices.remove(name).map(|_| ()).ok_or(Errno::NOENT),
            None if directory == FEATURES => Err(Errno::PERM),
            None => Err(Errno::NOENT),
        }
    }

    /// Finds a name in a directory. A device's node is new, and counts as looked up once.
    pub fn lookup(&mut self, directory: u64, name: &[u8]) -> Result<u64, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        match (directory, name) {
            (ROOT, CONTROL_NAME) => return Ok(CONTROL),
            (ROOT, FEATURES_NAME) => return Ok(FEATURES),
            (ROOT, _) => {}
            (FEATURES, _) => {
                let index = FEATURE_NAMES.iter().position(|feature| *feature == name);
                return index.map(|index| FIRST_FEATURE + index as u64).ok_or(Errno::NOENT);
            }
            _ => return Err(Errno::NOTDIR),
        }
        let owned = *self.devices.get(name).ok_or(Errno::NOENT)?;
        self.last_node += 1;
        let node = DeviceNode { context: name.to_owned(), lookups: 1, is_opened: false, owned };
        self.nodes.insert(self.last_node, node);
        Ok(self.last_node)
    }

    /// The kernel forgets so many lookups of a node.
    pub fn forget(&mut self, node: u64, lookups: u64) {
        if let Some(found) = self.nodes.get_mut(&node) {
            found.lookups = found.lookups.saturating_sub(lookups);
            if found.lookups == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    /// The context of a device's node that has not been opened yet. `ESTALE` if it has: the kernel
    /// then looks the name up again.
    pub fn open_device(&mut self, node: u64) -> Result<String, Errno> {
        let found = self.nodes.get_mut(&node).ok_or(Errno::NOENT)?;
        if std::mem::replace(&mut found.is_opened, true) {
            return Err(Errno::STALE);
        }
        Ok(found.context.clone())
    }

    /// Whether a node is a device's.
    pub fn is_device(&self, node: u64) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The attributes of a node.
    pub fn attributes(&self, node: u64) -> Result<Attributes, Errno> {
        let (uid, gid) = self.owner;
        let (directory, file) = (libc::S_IFDIR, libc::S_IFREG);
        let (mode, links, size, owned) = match node {
            ROOT | FEATURES => (directory, 2, 0, Owned { permissions: 0o755, uid, gid }),
            CONTROL => (file, 1, 0, Owned { permissions: 0o600, uid, gid }),
            _ if is_feature(node) => {
                (file, 1, FEATURE.len() as u64, Owned { permissions: 0o444, uid, gid })
            }
            _ => {
                let found = self.nodes.get(&node).ok_or(Errno::NOENT)?;
                // An unlinked device keeps what it had when it was looked up.
                (file, 1, 0, *self.devices.get(&found.context).unwrap_or(&found.owned))
            }
        };
        let Owned { permissions, uid, gid } = owned;
        let mode = mode | permissions;
        Ok(Attributes { inode: node, size, links, mode, uid, gid, ..Attributes::default() })
    }

    /// Sets a device's permissions and owner. The rest, a size for example, is ignored.
    pub fn set_attributes(&mut self, node: u64, set: &SetAttributesIn) -> Result<(), Errno> {
        let changes = set.valid & (SET_MODE | SET_UID | SET_GID) != 0;
        let Some(found) = self.nodes.get(&node) else {
            return if changes { Err(Errno::PERM) } else { Ok(()) };
        };
        if let Some(owned) = self.devices.get_mut(&found.context) {
            if set.valid & SET_MODE != 0 {
                owned.permissions = set.mode & 0o7777;
            }
            if set.valid & SET_UID != 0 {
                owned.uid = set.uid;
            }
            if set.valid & SET_GID != 0 {
                owned.gid = set.gid;
            }
        }
        Ok(())
    }

    /// The entries of a directory.
    pub fn entries(&self, directory: u64) -> Result<Vec<Entry>, Errno> {
        let entry =
            |node, name: &str, is_directory| Entry { node, name: name.into(), is_directory };
        let mut entries = vec![entry(directory, ".", true), entry(ROOT, "..", true)];
        match directory {
            ROOT => {
                entries.push(entry(CONTROL, CONTROL_NAME, false));
                entries.push(entry(FEATURES, FEATURES_NAME, true));
                // A device's inode number is another one at each lookup.
                let devices = self.devices.keys().map(|name| entry(FIRST_DEVICE, name, false));
                entries.extend(devices);
            }
            FEATURES => entries.extend(
                (FIRST_FEATURE..).zip(FEATURE_NAMES).map(|(node, name)| entry(node, name, false)),
            ),
            _ => return Err(Errno::NOTDIR),
        }
        Ok(entries)
    }
}

/// Whether a node is a feature's file.
pub fn is_feature(node: u64) -> bool {
    (FIRST_FEATURE..FIRST_FEATURE + FEATURE_NAMES.len() as u64).contains(&node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::new(1, 2);
        tree.add("binder").unwrap();
        tree
    }

    #[test]
    fn every_lookup_of_a_device_is_a_node_that_opens_once() {
        let mut tree = tree();
        let first = tree.lookup(ROOT, b"binder").unwrap();
        let second = tree.lookup(ROOT, b"binder").unwrap();
        assert_ne!(first, second);
        assert_eq!(tree.open_device(first), Ok("binder".to_owned()));
        assert_eq!(tree.open_device(first), Err(Errno::STALE));
        assert_eq!(tree.open_device(second), Ok("binder".to_owned()));
        tree.forget(first, 1);
        tree.forget(second, 7);
        assert_eq!((tree.open_device(first), tree.nodes.len()), (Err(Errno::NOENT), 0));
    }

    #[test]
    fn names_are_the_kernels() {
        let mut tree = tree();
        for (name, expected) in [
            ("", Errno::ACCESS),
            ("..", Errno::ACCESS),
            ("a/b", Errno::ACCESS),
            (&"x".repeat(256), Errno::ACCESS),
            ("binder", Errno::EXIST),
            ("binder-control", Errno::EXIST),
            ("features", Errno::EXIST),
        ] {
            assert_eq!(tree.add(name), Err(expected), "{name}");
        }
        for (directory, name, expected) in [
            (ROOT, "binder-control", Err(Errno::PERM)),
            (ROOT, "features", Err(Errno::ISDIR)),
            (ROOT, "nothing", Err(Errno::NOENT)),
            (FEATURES, "extended_error", Err(Errno::PERM)),
            (ROOT, "binder", Ok(())),
            (ROOT, "binder", Err(Errno::NOENT)),
        ] {
            assert_eq!(tree.unlink(directory, name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn an_unlinked_device_keeps_its_attributes() {
        let mut tree = tree();
        let node = tree.lookup(ROOT, b"binder").unwrap();
        let before = tree.attributes(node).unwrap();
        assert_eq!((before.mode, before.uid, before.gid), (libc::S_IFREG | 0o666, 1, 2));
        tree.unlink(ROOT, b"binder").unwrap();
        assert_eq!(tree.attributes(node), Ok(before));
        assert_eq!(tree.lookup(ROOT, b"binder"), Err(Errno::NOENT));
    }

    #[test]
    fn directories_list_what_can_be_looked_up() {
        let mut tree = tree();
        for directory in [ROOT, FEATURES] {
            for entry in tree.entries(directory).unwrap().split_off(2) {
                assert!(tree.lookup(directory, entry.name.as_bytes()).is_ok(), "{entry:?}");
            }
        }
        assert_eq!(tree.entries(CONTROL), Err(Errno::NOTDIR));
    }
}
