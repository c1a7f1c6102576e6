//! The files of a binderfs, without I/O.
//!
//! ```text
//!   /  binder-control  features/<feature>  <context>...  binder_logs/...
//! ```
//!
//! A context's file has a new node each time it is looked up: the kernel passes all opens of one
//! node to one backing file, and each open of a device has a receive buffer of its own.

use crate::entry::Entry;
use crate::log_files::{self, LogNode};
use crate::protocol::{Attributes, SET_GID, SET_MODE, SET_UID, SetAttributesIn};
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// A device's file, whatever its node, binder-control, or the root directory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Owned {
    permissions: u32,
    uid: u32,
    gid: u32,
}

impl Owned {
    fn set(&mut self, set: &SetAttributesIn) {
        if set.valid & SET_MODE != 0 {
            self.permissions = set.mode & 0o7777;
        }
        if set.valid & SET_UID != 0 {
            self.uid = set.uid;
        }
        if set.valid & SET_GID != 0 {
            self.gid = set.gid;
        }
    }
}

/// A node of a device.
#[derive(Clone, Debug)]
struct DeviceNode {
    context: String,
    lookups: u64,
    is_opened: bool,
    owned: Owned,
}

/// The files that programs can change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Files {
    root: Owned,
    control: Owned,
    devices: BTreeMap<String, Owned>,
}

impl Files {
    /// The devices' names.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.keys().map(String::as_str)
    }
}

/// All files.
#[derive(Debug)]
pub struct Tree {
    owner: (u32, u32),
    files: Files,
    nodes: HashMap<u64, DeviceNode>,
    /// Nodes of servers that were killed have numbers up to this one.
    last_stale: u64,
    last_node: u64,
    options: Options,
    /// The processes that have a file in `binder_logs/proc`.
    pub processes: BTreeSet<u32>,
}

/// Options of a mount, as the kernel's binderfs has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `max=`: devices that there can be.
    pub most_devices: usize,
    /// `stats=global`: there is `binder_logs`, which shows the processes of all mounts.
    pub has_logs: bool,
}

impl Default for Options {
    /// As many devices as there are numbers for them in the kernel, and no logs.
    fn default() -> Options {
        Options { most_devices: 1 << 20, has_logs: false }
    }
}

impl Tree {
    /// A tree without devices, whose files belong to this user and group.
    pub fn new((uid, gid): (u32, u32), options: Options) -> Tree {
        let root = Owned { permissions: 0o755, uid, gid };
        let control = Owned { permissions: 0o600, uid, gid };
        Tree {
            owner: (uid, gid),
            files: Files { root, control, devices: BTreeMap::new() },
            nodes: HashMap::new(),
            last_stale: FIRST_DEVICE - 1,
            last_node: FIRST_DEVICE - 1,
            options,
            processes: BTreeSet::new(),
        }
    }

    /// The files of a server that was killed. Nodes have other numbers than those of so many
    /// servers before.
    pub fn restore(&mut self, files: Files, servers: u64) {
        self.files = files;
        self.last_stale = FIRST_DEVICE * (servers + 1) - 1;
        self.last_node = self.last_stale;
    }

    /// The files that programs can change.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Whether a node is of a device, and of a server that was killed.
    pub fn is_stale(&self, node: u64) -> bool {
        (FIRST_DEVICE..=self.last_stale).contains(&node)
    }

    /// Adds a device. `EEXIST` if there is a file of this name, `EACCES` for a name that no file
    /// can have, `ENOSPC` if there are as many devices as there may be, as the kernel's binderfs
    /// answers.
    pub fn add(&mut self, context: &str) -> Result<(), Errno> {
        let is_no_name = context.is_empty()
            || context.len() > MAX_NAME_BYTES
            || context.contains(['/', '\0'])
            || matches!(context, "." | "..");
        if is_no_name {
            return Err(Errno::ACCESS);
        }
        // As in the kernel, a full file system says so before it looks at the name.
        if self.files.devices.len() >= self.options.most_devices {
            return Err(Errno::NOSPC);
        }
        if self.files.devices.contains_key(context) || self.is_fixed(context) {
            return Err(Errno::EXIST);
        }
        let (uid, gid) = self.owner;
        self.files.devices.insert(context.to_owned(), Owned { permissions: 0o666, uid, gid });
        Ok(())
    }

    /// Whether a name in the root directory is that of no device.
    fn is_fixed(&self, name: &str) -> bool {
        let is_logs = self.options.has_logs && name == log_files::NAME;
        is_logs || [CONTROL_NAME, FEATURES_NAME].contains(&name)
    }

    /// The node of logs of a number, if there is one.
    pub fn log_node(&self, node: u64) -> Option<LogNode> {
        LogNode::of(node).filter(|_| self.options.has_logs)
    }

    /// Removes a device's name. Programs that have it open keep it.
    pub fn unlink(&mut self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        let device = std::str::from_utf8(name).ok().filter(|_| directory == ROOT);
        match device {
            Some(CONTROL_NAME) => Err(Errno::PERM),
            Some(name) if self.is_fixed(name) => Err(Errno::ISDIR),
            Some(name) => self.files.devices.remove(name).map(|_| ()).ok_or(Errno::NOENT),
            None if directory == FEATURES || self.log_node(directory).is_some() => Err(Errno::PERM),
            None => Err(Errno::NOENT),
        }
    }

    /// Finds a name in a directory. A device's node is new, and counts as looked up once.
    pub fn lookup(&mut self, directory: u64, name: &[u8]) -> Result<u64, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        if let Some(logs) = self.log_node(directory) {
            return logs.lookup(name, &self.processes).map(LogNode::number);
        }
        match (directory, name) {
            (ROOT, log_files::NAME) if self.options.has_logs => {
                return Ok(LogNode::Directory.number());
            }
            (ROOT, CONTROL_NAME) => return Ok(CONTROL),
            (ROOT, FEATURES_NAME) => return Ok(FEATURES),
            (ROOT, _) => {}
            (FEATURES, _) => {
                let index = FEATURE_NAMES.iter().position(|feature| *feature == name);
                return index.map(|index| FIRST_FEATURE + index as u64).ok_or(Errno::NOENT);
            }
            _ => return Err(Errno::NOTDIR),
        }
        let owned = *self.files.devices.get(name).ok_or(Errno::NOENT)?;
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
        if let Some(logs) = self.log_node(node) {
            let (mode, links) = match logs.is_directory() {
                true => (directory | 0o755, 2),
                false => (file | 0o444, 1),
            };
            return Ok(Attributes { inode: node, links, mode, uid, gid, ..Attributes::default() });
        }
        let (mode, links, size, owned) = match node {
            ROOT => (directory, 2, 0, self.files.root),
            FEATURES => (directory, 2, 0, Owned { permissions: 0o755, uid, gid }),
            CONTROL => (file, 1, 0, self.files.control),
            _ if is_feature(node) => {
                (file, 1, FEATURE.len() as u64, Owned { permissions: 0o444, uid, gid })
            }
            _ => {
                let found = self.nodes.get(&node).ok_or(Errno::NOENT)?;
                // An unlinked device keeps what it had when it was looked up.
                // Maps end with the file: it is as long as a receive buffer.
                let size = MAX_PAYLOAD_BYTES as u64;
                (file, 1, size, *self.files.devices.get(&found.context).unwrap_or(&found.owned))
            }
        };
        let Owned { permissions, uid, gid } = owned;
        let mode = mode | permissions;
        Ok(Attributes { inode: node, size, links, mode, uid, gid, ..Attributes::default() })
    }

    /// Sets the permissions and the owner of a device, of binder-control or of the root directory.
    /// The rest, a size for example, is ignored.
    pub fn set_attributes(&mut self, node: u64, set: &SetAttributesIn) -> Result<(), Errno> {
        let changes = set.valid & (SET_MODE | SET_UID | SET_GID) != 0;
        let owned = match self.nodes.get(&node) {
            Some(found) => self.files.devices.get_mut(&found.context),
            None if node == ROOT => Some(&mut self.files.root),
            None if node == CONTROL => Some(&mut self.files.control),
            None if changes => return Err(Errno::PERM),
            None => None,
        };
        if let Some(owned) = owned {
            owned.set(set);
        }
        Ok(())
    }

    /// The entries of a directory.
    pub fn entries(&self, directory: u64) -> Result<Vec<Entry>, Errno> {
        let entry =
            |node, name: &str, is_directory| Entry { node, name: name.into(), is_directory };
        let mut entries = vec![entry(directory, ".", true), entry(ROOT, "..", true)];
        if let Some(logs) = self.log_node(directory) {
            entries.extend(logs.entries(&self.processes)?);
            return Ok(entries);
        }
        match directory {
            ROOT => {
                if self.options.has_logs {
                    entries.push(entry(LogNode::Directory.number(), log_files::NAME, true));
                }
                entries.push(entry(CONTROL, CONTROL_NAME, false));
                entries.push(entry(FEATURES, FEATURES_NAME, true));
                // A device's inode number is another one at each lookup.
                let devices =
                    self.files.devices.keys().map(|name| entry(FIRST_DEVICE, name, false));
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
    use bytemuck::Zeroable;

    fn tree() -> Tree {
        let mut tree = Tree::new((1, 2), Options { has_logs: true, most_devices: 2 });
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
            ("binder_logs", Errno::EXIST),
        ] {
            assert_eq!(tree.add(name), Err(expected), "{name}");
        }
        for (directory, name, expected) in [
            (ROOT, "binder-control", Err(Errno::PERM)),
            (ROOT, "features", Err(Errno::ISDIR)),
            (ROOT, "binder_logs", Err(Errno::ISDIR)),
            (LogNode::Directory.number(), "state", Err(Errno::PERM)),
            (ROOT, "nothing", Err(Errno::NOENT)),
            (FEATURES, "extended_error", Err(Errno::PERM)),
            (ROOT, "binder", Ok(())),
            (ROOT, "binder", Err(Errno::NOENT)),
        ] {
            assert_eq!(tree.unlink(directory, name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn devices_binder_control_and_the_directory_change_their_owners() {
        let mut tree = tree();
        let mut set: SetAttributesIn = Zeroable::zeroed();
        (set.valid, set.uid, set.mode) = (SET_UID | SET_MODE, 7, 0o100_640);
        let device = tree.lookup(ROOT, b"binder").unwrap();
        for (node, kind) in
            [(device, libc::S_IFREG), (CONTROL, libc::S_IFREG), (ROOT, libc::S_IFDIR)]
        {
            tree.set_attributes(node, &set).unwrap();
            let now = tree.attributes(node).unwrap();
            assert_eq!((now.mode, now.uid, now.gid), (kind | 0o640, 7, 2), "{node}");
        }
        let next = tree.lookup(ROOT, b"binder").unwrap();
        assert_eq!(tree.attributes(next).unwrap().uid, 7, "it is the file's, whatever the node");
        assert_eq!(tree.set_attributes(FEATURES, &set), Err(Errno::PERM));
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
        tree.processes = BTreeSet::from([7]);
        let logs = [LogNode::Directory, LogNode::Processes].map(LogNode::number);
        for directory in [ROOT, FEATURES, logs[0], logs[1]] {
            for entry in tree.entries(directory).unwrap().split_off(2) {
                let node = tree.lookup(directory, entry.name.as_bytes()).unwrap();
                let is_directory = tree.attributes(node).unwrap().mode & libc::S_IFDIR != 0;
                assert_eq!(is_directory, entry.is_directory, "{entry:?}");
            }
        }
        assert_eq!(tree.entries(CONTROL), Err(Errno::NOTDIR));
    }

    #[test]
    fn there_are_as_many_devices_as_there_may_be() {
        let mut tree = tree();
        assert_eq!(tree.add("two"), Ok(()));
        assert_eq!(tree.add("three"), Err(Errno::NOSPC));
        tree.unlink(ROOT, b"binder").unwrap();
        assert_eq!(tree.add("three"), Ok(()));
    }

    #[test]
    fn a_mount_has_logs_only_if_it_is_asked_to() {
        let mut tree = Tree::new((1, 2), Options::default());
        assert_eq!(tree.lookup(ROOT, b"binder_logs"), Err(Errno::NOENT));
        assert_eq!(tree.attributes(LogNode::Directory.number()), Err(Errno::NOENT));
        assert_eq!(tree.add("binder_logs"), Ok(()));
        assert!(tree.entries(ROOT).unwrap().iter().all(|entry| entry.node != 16));
    }
}
