//! The requests of clients: of every kind, mostly sensible, on existing objects.

use model::Model;
use types::acl;
use types::{AttrChange, Cred, Ino, RenameFlags, XattrFlags};

use super::Requests;
use crate::call::{Call, CallKind};
use crate::region::RegionKind;
use types::rng::Rng;

const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The next request of a client, if there is a region it may work in.
pub(crate) fn next(run: &mut Requests, client: usize) -> Option<Call> {
    let id = run.world.clients[client].id;
    let careful = run.workers[client].careful;
    let regions: Vec<usize> = (0..run.oracle.regions.len())
        .filter(|at| run.oracle.regions[*at].known && !run.oracle.regions[*at].closed)
        .filter(|at| match run.oracle.regions[*at].kind {
            RegionKind::AckSafe => careful,
            RegionKind::Strong | RegionKind::Volatile => !careful,
            RegionKind::Decoupled => {
                let owner = run.oracle.regions[*at].owner;
                !careful && owner.is_some_and(|(owner, _)| owner != id)
            }
        })
        .collect();
    if regions.is_empty() {
        return None;
    }
    let at = regions[run.world.rng.index(regions.len())];
    let root = run.oracle.regions[at].root;
    let mut rng = run.world.rng.fork();
    let names = run.plan.names;
    let session = &run.world.home(client).session;
    let mut places = Places::seen(&run.oracle.model, Some(session), root, names);
    if run.plan.exclusive {
        places.prefer(id.0, run.plan.clients as u64);
    }
    let cred = cred(&mut rng);
    let mut weights = run.plan.weights;
    if !keeps_links(run, at) {
        weights.link = 0;
    }
    let is_strong = run.oracle.regions[at].kind == RegionKind::Strong;
    let what = if run.plan.trash && is_strong && rng.percent(8) {
        places.trash(&run.oracle.model, &mut rng)
    } else {
        places.what(&weights, &mut rng)
    };
    // The history of names is about names that come and go one by one.
    if !run.plan.trash
        && matches!(run.oracle.regions[at].kind, RegionKind::Strong | RegionKind::AckSafe)
    {
        run.history.watch(what.touched().0);
    }
    Some(Call { cred, what })
}

/// Whether hard links survive in a region as all else does. An inode with several names is not in
/// the directories that name it: where changes are not journalled, a crash may leave it with more
/// links than names, or names of nothing.
fn keeps_links(run: &Requests, at: usize) -> bool {
    let projects = run.workers.iter().filter_map(|client| client.project.as_ref());
    match run.oracle.regions[at].kind {
        RegionKind::Strong | RegionKind::AckSafe => true,
        RegionKind::Volatile => false,
        RegionKind::Decoupled => projects.into_iter().any(|project| project.keeps(at)),
    }
}

fn list_name(is_default: bool) -> String {
    let name = if is_default { acl::DEFAULT_LIST } else { acl::ACCESS_LIST };
    String::from_utf8_lossy(name).into_owned()
}

fn cred(rng: &mut Rng) -> Cred {
    match rng.below(10) {
        0 => Cred { uid: 1, gid: 1, groups: vec![] },
        1 => Cred { uid: 2, gid: 2, groups: vec![1] },
        _ => Cred::root(),
    }
}

/// The directories of a region, its root first.
pub(crate) fn dirs(model: &Model, root: Ino) -> Vec<Ino> {
    Places::of(model, root, 1).dirs
}

/// The content of a region.
struct Places {
    dirs: Vec<Ino>,
    others: Vec<Ino>,
    /// Directories with an exclusive capability of the client, and directories in which it works
    /// more than other clients do.
    preferred: Vec<Ino>,
    /// The files in directories with an exclusive capability, and their directories.
    own: Vec<(Ino, Ino)>,
    names: u64,
}

impl Places {
    fn of(model: &Model, root: Ino, names: u64) -> Self {
        Self::seen(model, None, root, names)
    }

    /// As a client sees it, which may be ahead of the model.
    fn seen(model: &Model, session: Option<&client::Session>, root: Ino, names: u64) -> Self {
        let (others, preferred) = (Vec::new(), Vec::new());
        let mut places = Self { dirs: vec![root], others, preferred, own: Vec::new(), names };
        let mut at = 0;
        while at < places.dirs.len() {
            let dir = places.dirs[at];
            at += 1;
            if let Some(entries) = session.and_then(|session| session.exclusive_entries(dir)) {
                places.preferred.push(dir);
                for (ino, is_dir) in entries {
                    if !is_dir {
                        places.own.push((dir, ino));
                    }
                    let list = if is_dir { &mut places.dirs } else { &mut places.others };
                    list.push(ino);
                }
                continue;
            }
            for (_, ino) in model.entries(dir) {
                let list = if model.is_dir(ino) { &mut places.dirs } else { &mut places.others };
                list.push(ino);
            }
        }
        places
    }

    /// Each client has directories of its own, mostly.
    fn prefer(&mut self, client: u64, clients: u64) {
        let own = |dir: &Ino| dir.0 % clients == client % clients;
        let own: Vec<Ino> = self.dirs.iter().copied().filter(own).collect();
        self.preferred.extend(own);
    }

    fn dir(&self, rng: &mut Rng) -> Ino {
        if !self.preferred.is_empty() && rng.percent(85) {
            return self.preferred[rng.index(self.preferred.len())];
        }
        self.dirs[rng.index(self.dirs.len())]
    }

    fn any(&self, rng: &mut Rng) -> Ino {
        if self.others.is_empty() || rng.percent(20) {
            return self.dir(rng);
        }
        self.others[rng.index(self.others.len())]
    }

    fn link(&self, rng: &mut Rng) -> CallKind {
        if !self.own.is_empty() && rng.percent(50) {
            let (parent, ino) = self.own[rng.index(self.own.len())];
            return CallKind::Link { ino, parent, name: self.name(rng) };
        }
        CallKind::Link { ino: self.any(rng), parent: self.dir(rng), name: self.name(rng) }
    }

    fn name(&self, rng: &mut Rng) -> String {
        match rng.below(200) {
            0 => "..".into(),
            1 => "n".repeat(256),
            _ => format!("n{}", rng.below(self.names)),
        }
    }

    fn what(&self, weights: &crate::plan::Weights, rng: &mut Rng) -> CallKind {
        let w = weights;
        let kinds = [
            w.create, w.mkdir, w.remove, w.rename, w.link, w.attr, w.xattr, w.data, w.read, w.sync,
            w.other,
        ];
        let mut at = rng.below(kinds.iter().sum());
        let mut kind = 0;
        while at >= kinds[kind] {
            at -= kinds[kind];
            kind += 1;
        }
        match kind {
            0 => self.create(rng),
            1 => self.mkdir(rng),
            2 => self.remove(rng),
            3 => self.rename(rng),
            4 => self.link(rng),
            5 => self.set_attr(rng),
            6 => self.set_xattr(rng),
            7 => {
                let data = vec![b'd'; rng.index(40)];
                let size = data.len() as u64 + rng.pick(&[0, 0, 100]);
                CallKind::SetData { ino: self.any(rng), data, size }
            }
            8 => self.read(rng),
            9 => CallKind::Sync,
            _ => {
                if rng.pick(&[0, 1]).eq(&0) {
                    CallKind::Checkpoint
                } else {
                    CallKind::GetPolicy { dir: self.dir(rng) }
                }
            }
        }
    }

    /// Removes a tree at once, or does something with one that was removed.
    fn trash(&self, model: &Model, rng: &mut Rng) -> CallKind {
        let kept: Vec<Ino> = model.kept().collect();
        let (parent, name) = (self.dir(rng), self.name(rng));
        if kept.is_empty() || rng.percent(60) {
            return CallKind::Discard { parent, name };
        }
        let ino = kept[rng.index(kept.len())];
        if rng.percent(70) {
            CallKind::Restore { ino, parent, name }
        } else {
            CallKind::EmptyTrash { ino }
        }
    }

    fn create(&self, rng: &mut Rng) -> CallKind {
        let (parent, name) = (self.dir(rng), self.name(rng));
        let (mode, data) = match rng.below(10) {
            0 => (LINK | 0o777, b"target".to_vec()),
            1 => (FILE | 0o644, vec![b'c'; rng.index(60)]),
            _ => (FILE | rng.pick(&[0o644, 0o600, 0o666]) as u32, Vec::new()),
        };
        let size = data.len() as u64 + rng.pick(&[0, 0, 10]);
        CallKind::Create { parent, name, mode, size, data }
    }

    fn mkdir(&self, rng: &mut Rng) -> CallKind {
        let mode = DIR | rng.pick(&[0o755, 0o777, 0o1777, 0o2777]) as u32;
        CallKind::Create {
            parent: self.dir(rng),
            name: self.name(rng),
            mode,
            size: 0,
            data: vec![],
        }
    }

    fn remove(&self, rng: &mut Rng) -> CallKind {
        let (parent, name) = (self.dir(rng), self.name(rng));
        if rng.percent(30) {
            CallKind::Rmdir { parent, name }
        } else {
            CallKind::Unlink { parent, name }
        }
    }

    fn rename(&self, rng: &mut Rng) -> CallKind {
        let from = (self.dir(rng), self.name(rng));
        let to = (self.dir(rng), self.name(rng));
        let flags = match rng.below(10) {
            0 => RenameFlags { no_replace: true, exchange: false },
            1..=3 => RenameFlags { no_replace: false, exchange: true },
            _ => RenameFlags::default(),
        };
        CallKind::Rename { from, to, flags }
    }

    fn set_attr(&self, rng: &mut Rng) -> CallKind {
        let mut change = AttrChange::default();
        match rng.below(4) {
            0 => change.mode = Some(rng.pick(&[0o600, 0o644, 0o777, 0o4755]) as u32),
            1 => change.uid = Some(rng.pick(&[0, 1, 2]) as u32),
            2 => change.size = Some(rng.below(1000)),
            _ => {
                change.mtime =
                    Some(types::Timestamp(i64::try_from(rng.below(1 << 40)).unwrap_or(1)))
            }
        }
        CallKind::SetAttr { ino: self.any(rng), change }
    }

    fn set_xattr(&self, rng: &mut Rng) -> CallKind {
        if rng.percent(40) {
            return self.set_list(rng);
        }
        let value = rng.percent(70).then(|| vec![b'v'; rng.index(20)]);
        let flags = match rng.below(6) {
            0 => XattrFlags { create: true, replace: false },
            1 => XattrFlags { create: false, replace: true },
            _ => XattrFlags::default(),
        };
        CallKind::SetXattr {
            ino: self.any(rng),
            name: format!("user.x{}", rng.below(3)),
            value,
            flags,
        }
    }

    /// Sets an access control list, or takes it away.
    fn set_list(&self, rng: &mut Rng) -> CallKind {
        let value = rng.percent(60).then(|| {
            let mut permissions = || rng.below(8) as u16;
            acl::linux_form(&[
                (acl::USER_OBJ, permissions() | 6, acl::NO_NUMBER),
                (acl::USER, permissions(), 1),
                (acl::GROUP_OBJ, permissions(), acl::NO_NUMBER),
                (acl::GROUP, permissions(), 2),
                (acl::MASK, permissions(), acl::NO_NUMBER),
                (acl::OTHER, permissions(), acl::NO_NUMBER),
            ])
        });
        let is_default = rng.percent(30);
        let ino = if is_default { self.dir(rng) } else { self.any(rng) };
        CallKind::SetXattr { ino, name: list_name(is_default), value, flags: XattrFlags::default() }
    }

    fn read(&self, rng: &mut Rng) -> CallKind {
        let ino = self.any(rng);
        match rng.below(8) {
            0 | 1 => CallKind::Lookup { parent: self.dir(rng), name: self.name(rng) },
            2 => CallKind::GetAttr { ino },
            3 => CallKind::List {
                dir: self.dir(rng),
                after: rng.percent(50).then(|| self.name(rng)),
                limit: rng.pick(&[1, 3, 100]) as u32,
                attrs: rng.percent(50),
            },
            4 => CallKind::GetData { ino },
            5 if rng.percent(30) => CallKind::GetXattr { ino, name: list_name(rng.percent(30)) },
            5 => CallKind::GetXattr { ino, name: format!("user.x{}", rng.below(3)) },
            6 => CallKind::ListXattr { ino },
            _ => {
                let path = (0..rng.between(1, 4)).map(|_| self.name(rng)).collect::<Vec<_>>();
                CallKind::Walk { base: self.dir(rng), path: path.join("/") }
            }
        }
    }
}
